import { render, type ComponentType } from 'preact'
import { useEffect, useLayoutEffect, useState } from 'preact/hooks'
import { call, session, type Caller, type Server } from './api'
import { contextOf, type Context, type Role } from './context'
import { choose, language, load, names, t, type Key } from './i18n'
import { Code, focusTitle, Problem } from './components'
import { resume, signOut } from './signin'
import { About } from './pages/about'
import { Audit } from './pages/audit'
import { Explain } from './pages/explain'
import { ForecastPage } from './pages/forecast'
import { GuardsPage } from './pages/guards'
import { History } from './pages/history'
import { Holds } from './pages/holds'
import { Overview } from './pages/overview'
import { Policies } from './pages/policies'
import { Preview } from './pages/preview'
import { hasRetention, Retention } from './pages/retention'
import { RunPage } from './pages/run'
import { SchedulePage } from './pages/schedule'
import { SignIn } from './pages/signin'
import { Tables } from './pages/tables'
import { Trash } from './pages/trash'
import { UserData } from './pages/userdata'

type Entry = {
  path: string
  title: Extract<Key, `${string}.title`>
  page: ComponentType<{ context: Context; argument: string[] }>
  needs?: Role
  offered?: (context: Context) => boolean
}

const entries: Entry[] = [
  { path: '', title: 'overview.title', page: Overview },
  { path: 'runs', title: 'history.title', page: History },
  { path: 'preview', title: 'preview.title', page: Preview },
  { path: 'retention', title: 'retention.title', page: Retention, offered: hasRetention },
  { path: 'policies', title: 'policies.title', page: Policies },
  { path: 'schedule', title: 'schedule.title', page: SchedulePage },
  { path: 'guards', title: 'guards.title', page: GuardsPage, needs: 'ADMIN' },
  { path: 'holds', title: 'holds.title', page: Holds, needs: 'ADMIN' },
  { path: 'trash', title: 'trash.title', page: Trash },
  { path: 'tables', title: 'tables.title', page: Tables },
  { path: 'forecast', title: 'forecast.title', page: ForecastPage },
  { path: 'explain', title: 'explain.title', page: Explain },
  {
    path: 'userdata',
    title: 'userdata.title',
    page: UserData,
    needs: 'ADMIN',
    offered: ({ server }) => server.userData === true,
  },
  { path: 'audit', title: 'audit.title', page: Audit, needs: 'ADMIN' },
  { path: 'about', title: 'about.title', page: About },
]

/** Decodes a part of the address; returns it unchanged if its encoding is invalid. */
function decoded(part: string) {
  try {
    return decodeURIComponent(part)
  } catch {
    return part
  }
}

/** Returns the current route, and how often it has changed. */
function useRoute() {
  const read = () => location.hash.replace(/^#\/?/, '').split('?')[0]!.split('/').map(decoded)
  const [state, setState] = useState(() => ({ route: read(), moves: 0 }))
  useLayoutEffect(() => {
    // a layout effect, so that no change is missed
    const moved = () => setState(({ moves }) => ({ route: read(), moves: moves + 1 }))
    addEventListener('hashchange', moved)
    return () => removeEventListener('hashchange', moved)
  }, [])
  return state
}

function App({ broken }: { broken?: unknown }) {
  const [context, setContext] = useState<Context>()
  const [problem, setProblem] = useState<unknown>(broken)
  const [signedOut, setSignedOut] = useState(false)
  const [thrown, setThrown] = useState<string>()
  const [, redraw] = useState(0)
  const {
    route: [first = '', ...argument],
    moves,
  } = useRoute()

  const enter = async () => {
    try {
      const [caller, server] = await Promise.all([call<Caller>('GET', '/v1/whoami'), call<Server>('GET', '/v1/server')])
      setContext(contextOf(caller, server))
      setSignedOut(false)
      setProblem(undefined)
    } catch (error) {
      if (session.token === '' || (error as { status?: number }).status === 401) setSignedOut(true)
      setProblem(error)
    }
  }
  useEffect(() => {
    session.signedOut = () => setSignedOut(true)
    const report = (event: ErrorEvent | PromiseRejectionEvent) =>
      setThrown(String('reason' in event ? event.reason : event.message))
    addEventListener('error', report)
    addEventListener('unhandledrejection', report)
    enter()
  }, [])

  useLayoutEffect(() => {
    if (moves > 0) focusTitle()
  }, [moves]) // after the new page is rendered

  const offered = context
    ? entries.filter(e => (!e.needs || context.may(e.needs)) && (e.offered?.(context) ?? true))
    : []
  const run = first === 'runs' && argument.length > 0
  const current = offered.find(e => e.path === first)
  const Current = run ? RunPage : current?.page
  return (
    <>
      <a
        class="skip"
        href="#main"
        onClick={event => {
          event.preventDefault()
          focusTitle()
        }}
      >
        {t('skip')}
      </a>
      <nav aria-label={t('navigation')}>
        <a class="brand" href="#/">
          <svg viewBox="0 0 16 16" aria-hidden="true">
            <rect width="16" height="16" rx="4" />
            <path d="M4 5h8M4 8h6M4 11h3" />
          </svg>
          cleanupd
        </a>
        {context && !signedOut && (
          <p class="database" title={context.server.databaseHost}>
            <Code>{context.server.database}</Code>
            {context.server.instance && (
              <>
                {' '}
                · {t('about.instance')} <Code>{context.server.instance}</Code>
              </>
            )}
          </p>
        )}
        {!signedOut &&
          offered.map(e => (
            <a key={e.path} href={`#/${e.path}`} aria-current={e === current ? 'page' : undefined}>
              {t(e.title)}
            </a>
          ))}
        <div class="who">
          {context && !signedOut && context.caller.subject && (
            <span title={context.caller.subject}>{context.caller.subject}</span>
          )}
          {context && !signedOut && session.token && (
            <button
              type="button"
              onClick={() => {
                signOut()
                setSignedOut(true)
              }}
            >
              {t('signin.out')}
            </button>
          )}
          <select
            aria-label={t('language')}
            value={language}
            onChange={e => choose(e.currentTarget.value).then(() => redraw(n => n + 1))}
          >
            {Object.entries(names).map(([code, name]) => (
              <option key={code} value={code} lang={code}>
                {name}
              </option>
            ))}
          </select>
        </div>
      </nav>
      <main id="main">
        {thrown && (
          <Problem error={new Error(t('problem.page', { what: thrown }))} retry={() => setThrown(undefined)} />
        )}
        {context?.server.refusal && (
          <div class="problem" lang="en">
            <p>{context.server.refusal}</p>
          </div>
        )}
        {signedOut ? (
          <SignIn problem={problem} onSignedIn={enter} />
        ) : !context ? (
          problem !== undefined && <Problem error={problem} retry={enter} />
        ) : Current ? (
          <Current key={JSON.stringify([first, argument, language])} context={context} argument={argument} />
        ) : (
          <p class="empty">
            {t('nowhere')} <a href="#/">{t('overview.title')}</a>
          </p>
        )}
      </main>
    </>
  )
}

/** Moves the focus to the page's title when the focused element is removed, so that keyboard users keep their place. */
function keepFocus() {
  let last: EventTarget | null = null
  addEventListener('focusin', event => {
    last = event.target
  })
  new MutationObserver(() => {
    if (last instanceof Element && !last.isConnected && document.activeElement === document.body) focusTitle()
  }).observe(document.body, { childList: true, subtree: true })
}

let broken: unknown
await load()
await resume().catch(error => {
  broken = error
})
keepFocus()
render(<App broken={broken} />, document.getElementById('app')!)
