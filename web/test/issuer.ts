import { createHash, generateKeyPairSync, randomUUID, sign } from 'node:crypto'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'

/** An OpenID Connect issuer, where everyone who asks for PKCE is jane, an admin. */
export async function issuer(): Promise<{ url: string; close: () => void }> {
  const { privateKey, publicKey } = generateKeyPairSync('rsa', { modulusLength: 2048 })
  const challenges = new Map<string, string>() // of a code
  const base64 = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url')
  let url = ''
  const jwt = (claims: object) => {
    const exp = Math.floor(Date.now() / 1000) + 3600
    const body = `${base64({ alg: 'RS256', kid: 'one' })}.${base64({ iss: url, sub: 'jane', exp, ...claims })}`
    return `${body}.${sign('sha256', Buffer.from(body), privateKey).toString('base64url')}`
  }
  const server = createServer(async (request, response) => {
    const { pathname, searchParams: q } = new URL(request.url!, url)
    const answer = (status: number, value: object) =>
      response.writeHead(status, { 'Content-Type': 'application/json' }).end(JSON.stringify(value))
    switch (pathname) {
      case '/.well-known/openid-configuration':
        return answer(200, {
          issuer: url,
          authorization_endpoint: url + '/auth',
          token_endpoint: url + '/token',
          jwks_uri: url + '/keys',
          id_token_signing_alg_values_supported: ['RS256'],
        })
      case '/keys':
        return answer(200, { keys: [{ ...publicKey.export({ format: 'jwk' }), kid: 'one', alg: 'RS256', use: 'sig' }] })
      case '/auth': {
        const state = q.get('state')
        if (q.get('response_type') !== 'code' || q.get('code_challenge_method') !== 'S256' || !state)
          return answer(400, { error: 'invalid_request' })
        const code = randomUUID()
        challenges.set(code, q.get('code_challenge') ?? '')
        const back = new URL(q.get('redirect_uri')!)
        back.search = String(new URLSearchParams({ code, state }))
        return response.writeHead(302, { Location: back.href }).end()
      }
      case '/token': {
        const chunks: Buffer[] = []
        for await (const chunk of request) chunks.push(chunk)
        const form = new URLSearchParams(Buffer.concat(chunks).toString())
        const verifier = createHash('sha256')
          .update(form.get('code_verifier') ?? '')
          .digest('base64url')
        if (challenges.get(form.get('code') ?? '') !== verifier) return answer(400, { error: 'invalid_grant' })
        return answer(200, {
          token_type: 'Bearer',
          expires_in: 3600,
          access_token: jwt({ aud: 'cleanupd', roles: 'admin' }),
          id_token: jwt({ aud: 'console' }),
        })
      }
    }
    return answer(404, {})
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  return {
    url,
    close: () => {
      server.close()
      server.closeAllConnections()
    },
  }
}
