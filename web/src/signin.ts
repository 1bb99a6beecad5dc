// Signing in: a token that is pasted, or an OpenID Connect issuer (authorization code with PKCE). The token is in memory, and in
// sessionStorage only if that was asked for; state and verifier are there for the redirect alone.
import { call, session } from './api'

export type Ways = {
  methods: string[]
  problem?: string
  oidc?: { authorizationEndpoint: string; clientId: string; scope: string; audience: string }
}
type Signed = { token: string; refreshToken?: string; expiresIn: number }

const kept = 'cleanupd.token',
  begun = 'cleanupd.signin'
let refreshToken = ''

export const ways = () => call<Ways>('GET', '/v1/auth')

const base64url = (bytes: Uint8Array) =>
  btoa(String.fromCharCode(...bytes))
    .replaceAll('+', '-')
    .replaceAll('/', '_')
    .replaceAll('=', '')
const random = () => base64url(crypto.getRandomValues(new Uint8Array(32)))
const here = () => location.origin + '/'

export function storeToken(token: string, keep: boolean) {
  session.token = token
  if (keep) sessionStorage.setItem(kept, token)
  else sessionStorage.removeItem(kept)
}

export function signOut() {
  refreshToken = ''
  storeToken('', false)
}

/** Sends the browser to the issuer. */
export async function redirect(oidc: NonNullable<Ways['oidc']>) {
  const state = random(),
    verifier = random()
  sessionStorage.setItem(begun, JSON.stringify({ state, verifier, page: location.hash }))
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

/** Takes up what the redirect brought, or the token that was kept. */
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
  const stored = sessionStorage.getItem(begun)
  sessionStorage.removeItem(begun)
  if (!answer.has('state')) {
    session.token = sessionStorage.getItem(kept) ?? ''
    return
  }
  const { state, verifier, page } = JSON.parse(stored ?? '{}') as { state?: string; verifier?: string; page?: string }
  history.replaceState(null, '', '/' + (page ?? '')) // the code is of no use any longer, and nobody needs to see it
  if (answer.get('state') !== state) throw new Error('The answer of the issuer is not for this page.')
  if (answer.has('error')) throw new Error(answer.get('error_description') ?? answer.get('error')!)
  await exchange({ code: answer.get('code') ?? '', codeVerifier: verifier!, redirectUri: here() })
}
