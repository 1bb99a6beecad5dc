// The sign-in page, with the methods that the server accepts.
import { useState } from 'preact/hooks'
import { ApiError } from '../api'
import { Field, Page, Problem, Show, useAction, useLoad } from '../components'
import { t } from '../i18n'
import { redirect, storeToken, signInMethods } from '../signin'

export function SignIn({ problem, onSignedIn }: { problem?: unknown; onSignedIn: () => Promise<void> }) {
  const accepted = useLoad(signInMethods, [])
  const [token, setToken] = useState('')
  const [keep, setKeep] = useState(false)
  const [tried, setTried] = useState(false)
  const { busy, problem: failed, act } = useAction()
  const quiet = problem instanceof ApiError && problem.status === 401 && !tried // no attempt has failed yet
  return (
    <Page title={t('signin.title')} intro={t('signin.intro')}>
      {!quiet && <Problem error={failed ?? problem} />}
      <Show loaded={accepted}>
        {({ methods, oidc, problem }) => (
          <>
            {problem && <Problem error={new Error(problem)} />}
            {oidc && (
              <p>
                <button type="button" class="primary" aria-disabled={busy} onClick={() => act(() => redirect(oidc))}>
                  {t('signin.oidc', { issuer: new URL(oidc.authorizationEndpoint).host })}
                </button>
              </p>
            )}
            {(methods.includes('token') || methods.includes('jwt')) && (
              <form
                onSubmit={event => {
                  event.preventDefault()
                  setTried(true)
                  storeToken(token.trim(), keep)
                  act(onSignedIn)
                }}
              >
                <Field label={t('signin.token')} help={t('signin.token.help')}>
                  <input
                    type="password"
                    required
                    autoComplete="off"
                    value={token}
                    onInput={e => setToken(e.currentTarget.value)}
                  />
                </Field>
                <label class="check">
                  <input type="checkbox" checked={keep} onChange={e => setKeep(e.currentTarget.checked)} />
                  {t('signin.keep')}
                </label>
                <button type="submit" class={oidc ? '' : 'primary'} aria-disabled={busy} disabled={token.trim() === ''}>
                  {t('signin.go')}
                </button>
              </form>
            )}
            {methods.includes('certificate') && (
              <p class="quiet">
                {t('signin.certificate')}{' '}
                <button type="button" onClick={() => act(onSignedIn)}>
                  {t('action.retry')}
                </button>
              </p>
            )}
          </>
        )}
      </Show>
    </Page>
  )
}
