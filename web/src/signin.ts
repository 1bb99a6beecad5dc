// Signs in with a pasted token or through an OpenID Connect issuer (authorization code with PKCE). The token is kept in
// memory, and in sessionStorage only if the user asks for it; state and verifier are there only during the redirect.
import { call, session } from './api'

export type SignInMethods = {
  methods: string[]
  problem?: string
  oidc?: { authorizationEndpoint: string; clientId: string; scope: string; audience: string }
}
type Signed = { token: string; refreshToken?: string; expiresIn: number }

const tokenKey = 'cleanupd.token',
  pendingKey = 'cleanupd.signin'
let refreshToken = ''

export const signInMethods = () => call<SignInMethods>('GET', '/v1/auth')

const base64url = (bytes: Uint8Array) =>
  btoa(String.fromCharCode(...bytes))
    .replaceAll('+', '-')
    .replaceAll('/', '_')
    .replaceAll('=', '')
const random = () => base64url(crypto.getRandomValues(new Uint8Array(32)))
const here = () => location.origin + '/'

export function storeToken(token: string, keep: boolean) {
  session.token = token
  if (keep) sessionStorage.setItem(tokenKey, token)
  else sessionStorage.removeItem(tokenKey)
}

export function signOut() {
  refreshToken = ''
  storeToken('', false)
}

/** Redirects the browser to the issuer. */
export async function redirect(oidc: NonNullable<SignInMethods['oidc']>) {
  const state = random(),
    verifier = random()
  sessionStorage.setItem(pendingKey, JSON.stringify({ state, verifier, page: location.hash }))
  const challenge = base64url(new Uint8Array(await crypto.subtle.digest('SHA-256', new TextEncoder().encode(verifier))))
  const target = new URL(oidc.authorizationEndpoint)
  for (const [name, value] of Object.entries({
    response_type: 'code',
    client_id: oidc.clientId,
    redirect_uri: here(),
    scope: oidc.scope,
    state,
    code_challenge: challenge,
    code_challenge_method: 'S256',
  })) {
    target.searchParams.set(name, value)
  }
  location.assign(target)
}

async function exchange(grant: Record<string, string>) {
  const answer = await fetch('/v1/auth:exchange', {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(grant),
  })
  const signed = await answer.json()
  if (!answer.ok) throw new Error(signed.message ?? answer.statusText)
  const { token, refreshToken: next } = signed as Signed
  session.token = token
  refreshToken = next ?? refreshToken
}

/** Completes a sign-in after the redirect, or restores the stored token. */
export async function resume() {
  session.renew = async () =>
    refreshToken !== '' &&
    exchange({ refreshToken }).then(
      () => true,
      () => {
        refreshToken = ''
        return false
      },
    )
  const answer = new URLSearchParams(location.search)
  const stored = sessionStorage.getItem(pendingKey)
  sessionStorage.removeItem(pendingKey)
  if (!answer.has('state')) {
    session.token = sessionStorage.getItem(tokenKey) ?? ''
    return
  }
  const { state, verifier, page } = JSON.parse(stored ?? '{}') as { state?: string; verifier?: string; page?: string }
  history.replaceState(null, '', '/' + (page ?? '')) // remove the code from the address bar and the history
  if (answer.get('state') !== state) throw new Error('The answer of the issuer is not for this page.')
  if (answer.has('error')) throw new Error(answer.get('error_description') ?? answer.get('error')!)
  await exchange({ code: answer.get('code') ?? '', codeVerifier: verifier!, redirectUri: here() })
}
