// The log of a run.
import { useLayoutEffect, useRef } from 'preact/hooks'
import { Problem, Said, Section, useAction } from '../components'
import { clock, number, t, type Message } from '../i18n'
import type { Model } from '../model'

const levels: Record<string, string> = { LOG_LEVEL_WARNING: 'warn', LOG_LEVEL_ERROR: 'bad' }

/** Shows a message. One of many lines, as of VACUUM, is folded. */
function Folded({ message }: { message: Message }) {
  const lines = (message.text ?? '').split('\n')
  if (lines.length <= 3) return <Said message={message} />
  return (
    <details>
      <summary>
        <span lang="en">{lines[0]}</span> {t('run.lines', { n: number(lines.length - 1) })}
      </summary>
      <Said message={message} />
    </details>
  )
}

/** Shows the log, with older and newer lines on demand. */
export function Log({ model, loadLog }: { model: Model; loadLog: (direction: 'earlier' | 'later') => Promise<void> }) {
  const { busy, problem, act } = useAction()
  const box = useRef<HTMLDivElement>(null),
    atEnd = useRef(true)
  useLayoutEffect(() => {
    // keep the newest line in view if it was in view before
    if (box.current && atEnd.current && model.upTo === model.last) box.current.scrollTop = box.current.scrollHeight
  }, [model.last, model.upTo])
  const move = (direction: 'earlier' | 'later') =>
    act(async () => {
      await loadLog(direction)
      if (direction === 'earlier') box.current?.scrollTo(0, 0)
    })
  return (
    <Section
      title={t('run.log')}
      actions={
        <span class="quiet" data-events={model.last} data-seen={model.seen}>
          {t('run.events', { n: number(model.last) })}
        </span>
      }
    >
      {model.first > 0 && (
        <p>
          <button type="button" aria-disabled={busy} onClick={() => move('earlier')}>
            {t('run.earlier')}
          </button>
        </p>
      )}
      <Problem error={problem} />
      {model.log.length === 0 ? (
        <p class="empty">{t('run.nolog')}</p>
      ) : (
        <div
          class="scroll log"
          ref={box}
          tabIndex={0}
          role="log"
          aria-label={t('run.log')}
          onScroll={({ currentTarget: e }) => {
            atEnd.current = e.scrollTop + e.clientHeight > e.scrollHeight - 5
          }}
        >
          {model.log.map(e => (
            <div key={e.sequence} class={`line ${levels[e.level] ?? ''}`}>
              <time dateTime={e.at} title={e.at}>
                {clock(e.at)}
              </time>
              {e.task && <span lang="en">{e.task}: </span>}
              <Folded message={e.message} />
            </div>
          ))}
        </div>
      )}
      {model.upTo < model.last && (
        <p>
          <button type="button" aria-disabled={busy} onClick={() => move('later')}>
            {t('run.later')}
          </button>
        </p>
      )}
    </Section>
  )
}
