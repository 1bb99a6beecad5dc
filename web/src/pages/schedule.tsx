// The schedule, and the runs of the next seven days.
import { useState } from 'preact/hooks'
import { call, query, violationAt, withoutFields, type Schedule, type ScheduleAnswer } from '../api'
import {
  Field,
  isStale,
  Moment,
  Page,
  Said,
  SaveProblem,
  Section,
  Show,
  useAction,
  useInvalid,
  useLoad,
} from '../components'
import { t, weekday } from '../i18n'
import type { Context } from '../context'
import { paceOf, secondsOf } from '../runs'
import { draftOf, openHours, windowOf } from '../windows'
import { PaceSelect } from './pace'
import { undoOf, UndoField } from './undo'
import { Windows } from './windows'

export function SchedulePage({ context }: { context: Context }) {
  const loaded = useLoad(signal => call<ScheduleAnswer>('GET', '/v1/schedule', undefined, signal), [])
  return (
    <Page title={t('schedule.title')} intro={t('schedule.intro')}>
      <Show loaded={loaded}>
        {({ schedule = {}, etag = '' }) => (
          <>
            {(schedule.warnings ?? []).map(warning => (
              <div class="notice" key={warning.code}>
                <p>
                  <Said message={warning} />
                </p>
              </div>
            ))}
            <Form key={etag} schedule={schedule} etag={etag} context={context} reload={loaded.reload} />
            <Section title={t('schedule.next')}>
              {(schedule.upcomingRunTimes ?? []).length === 0 ? (
                <p class="empty">{t('schedule.none')}</p>
              ) : (
                <>
                  <ul>
                    {schedule.upcomingRunTimes!.slice(0, 5).map(at => (
                      <li key={at}>
                        <Moment at={at} /> (<Moment at={at} ago />)
                      </li>
                    ))}
                  </ul>
                  <Week schedule={schedule} />
                </>
              )}
            </Section>
          </>
        )}
      </Show>
    </Page>
  )
}

type FormProps = { schedule: Schedule; etag: string; context: Context; reload: () => void }

/** Returns the fields of the request whose controls show what is wrong with them. */
const shownBy = (windows: unknown[]) => [
  'cron',
  'moreCrons',
  'timeZone',
  'maxDuration',
  'undo',
  'pace',
  'windows',
  ...windows.flatMap((_, i) => ['days', 'start', 'end', 'pace'].map(field => `windows[${i}].${field}`)),
]

function Form({ schedule, etag, context, reload }: FormProps) {
  const hours = secondsOf(schedule.maxDuration) / 3600
  const [draft, setDraft] = useState({
    enabled: schedule.enabled ?? false,
    crons: [schedule.cron ?? '', ...(schedule.moreCrons ?? [])].join('\n'),
    timeZone: schedule.timeZone ?? '',
    hours: hours ? String(hours) : '',
    undo: schedule.undo ? String(secondsOf(schedule.undo) / 3600) : '',
    continueOnError: schedule.continueOnError ?? true,
    pace: paceOf(schedule.pace) ? schedule.pace! : '',
    windows: (schedule.windows ?? []).map(draftOf),
    pauseStopsClock: schedule.pauseStopsClock ?? false,
  })
  // The windows as they were last sent, to which the problem refers.
  const [sent, setSent] = useState(draft.windows)
  const { busy, problem, act } = useAction()
  const form = useInvalid(problem)
  const about = (...fields: string[]) =>
    fields.flatMap(field => violationAt(problem, field) ?? []).join('\n') || undefined
  const save = () =>
    act(async () => {
      setSent(draft.windows)
      const [cron, ...moreCrons] = draft.crons
        .split('\n')
        .map(c => c.trim())
        .filter(c => c !== '')
      await call('PUT', query('/v1/schedule', { etag }), {
        enabled: draft.enabled,
        timeZone: draft.timeZone,
        continueOnError: draft.continueOnError,
        nextPlan: schedule.nextPlan || undefined,
        ...(cron ? { cron, moreCrons } : { once: schedule.once }),
        maxDuration: draft.hours ? `${Math.round(Number(draft.hours) * 3600)}s` : undefined,
        undo: undoOf(draft.undo),
        pace: draft.pace || undefined,
        windows: draft.windows.map(windowOf),
        pauseStopsClock: draft.pauseStopsClock,
      })
      reload()
    })
  return (
    <form
      ref={form}
      onSubmit={event => {
        event.preventDefault()
        save()
      }}
    >
      <fieldset disabled={!context.may('ADMIN')}>
        <label class="check">
          <input
            type="checkbox"
            checked={draft.enabled}
            onChange={e => setDraft({ ...draft, enabled: e.currentTarget.checked })}
          />
          {t('schedule.enabled')}
        </label>
        {schedule.once && (
          <p class="quiet">
            {t('schedule.once')} <Moment at={schedule.once} />
          </p>
        )}
        <Field label={t('schedule.cron')} help={t('schedule.cron.help')} problem={about('cron', 'moreCrons')}>
          <textarea
            aria-invalid={about('cron', 'moreCrons') !== undefined}
            rows={Math.max(2, draft.crons.split('\n').length)}
            spellcheck={false}
            value={draft.crons}
            onInput={e => setDraft({ ...draft, crons: e.currentTarget.value })}
          />
        </Field>
        <Field label={t('schedule.zone')} help={t('schedule.zone.help')} problem={about('timeZone')}>
          <input
            aria-invalid={about('timeZone') !== undefined}
            list="zones"
            value={draft.timeZone}
            onInput={e => setDraft({ ...draft, timeZone: e.currentTarget.value })}
          />
        </Field>
        <datalist id="zones">
          {Intl.supportedValuesOf('timeZone').map(zone => (
            <option key={zone} value={zone} />
          ))}
        </datalist>
        <Field label={t('schedule.hours')} help={t('schedule.hours.help')} problem={about('maxDuration')}>
          <input
            type="number"
            aria-invalid={about('maxDuration') !== undefined}
            min={0}
            step="any"
            value={draft.hours}
            onInput={e => setDraft({ ...draft, hours: e.currentTarget.value })}
          />
        </Field>
        <label class="check">
          <input
            type="checkbox"
            checked={draft.continueOnError}
            onChange={e => setDraft({ ...draft, continueOnError: e.currentTarget.checked })}
          />
          {t('schedule.continue')}
        </label>
        <label class="check">
          <input
            type="checkbox"
            checked={draft.pauseStopsClock}
            onChange={e => setDraft({ ...draft, pauseStopsClock: e.currentTarget.checked })}
          />
          {t('schedule.clock')}
        </label>
        <PaceSelect
          value={draft.pace}
          unset={t('pace.server')}
          problem={about('pace')}
          onChange={pace => setDraft({ ...draft, pace })}
        />
        <UndoField
          hours={draft.undo}
          usual={secondsOf(context.server.undo)}
          policies
          problem={about('undo')}
          onChange={undo => setDraft({ ...draft, undo })}
        />
        <Windows
          windows={draft.windows}
          change={windows => setDraft({ ...draft, windows })}
          problem={about('windows')}
          problemOf={({ key }, field) => about(`windows[${sent.findIndex(w => w.key === key)}].${field}`)}
          mayChange={context.may('ADMIN')}
        />
        <SaveProblem error={withoutFields(problem, shownBy(sent))} reload={reload} />
        {context.may('ADMIN') && (
          <button type="submit" class="primary" aria-disabled={busy} disabled={isStale(problem)}>
            {t('action.save')}
          </button>
        )}
      </fieldset>
    </form>
  )
}

const hour = 26,
  tall = 18,
  names = 44

/** Draws the runs of the next seven days in the schedule's time zone, each as long as a run may take. */
function Week({ schedule }: { schedule: Schedule }) {
  const inZone = new Intl.DateTimeFormat('en-GB', {
    timeZone: schedule.timeZone || 'UTC',
    year: 'numeric',
    month: '2-digit',
    day: '2-digit',
    hour: '2-digit',
    minute: '2-digit',
    hourCycle: 'h23',
  })
  const place = (at: number) => {
    const part = Object.fromEntries(inZone.formatToParts(at).map(p => [p.type, Number(p.value)])) as Record<
      string,
      number
    >
    return { day: Date.UTC(part.year!, part.month! - 1, part.day!) / 86400_000, hours: part.hour! + part.minute! / 60 }
  }
  const first = place(Date.now()).day
  const most = secondsOf(schedule.maxDuration) / 3600 || 1
  const bars = (schedule.upcomingRunTimes ?? [])
    .flatMap(at => {
      const { day, hours } = place(Date.parse(at))
      const over = hours + most - 24 // hours on the next day
      return [
        { at, row: day - first, from: hours, hours: Math.min(most, 24 - hours) },
        ...(over > 0 ? [{ at: `${at} `, row: day - first + 1, from: 0, hours: Math.min(over, 24) }] : []),
      ]
    })
    .filter(bar => bar.row < 7)
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={t('schedule.week', { zone: schedule.timeZone ?? '' })}>
      <svg
        class="week"
        width={names + 24 * hour + 10}
        height={8 * tall + 6}
        role="img"
        aria-label={t('schedule.week', { zone: schedule.timeZone ?? '' })}
      >
        {[0, 6, 12, 18, 24].map(h => (
          <g key={h}>
            <line class="grid" x1={names + h * hour} x2={names + h * hour} y1={tall} y2={8 * tall} />
            <text x={names + h * hour} y={12} text-anchor={h === 24 ? 'end' : 'middle'}>
              {h}:00
            </text>
          </g>
        ))}
        {[0, 1, 2, 3, 4, 5, 6].map(row => (
          <text key={row} x={0} y={tall * (row + 1) + 13}>
            {weekday(new Date((first + row) * 86400_000))}
          </text>
        ))}
        {openHours(schedule.windows ?? [], first).map(({ row, from, to }, i) => (
          <rect
            key={`window ${i}`}
            class="open"
            x={names + from * hour}
            y={tall * (row + 1)}
            width={(to - from) * hour}
            height={tall}
          />
        ))}
        {bars.map(bar => (
          <rect
            key={bar.at}
            class="part0"
            x={names + bar.from * hour}
            y={tall * (bar.row + 1) + 3}
            width={Math.max(2, bar.hours * hour)}
            height={tall - 6}
            rx={2}
          />
        ))}
      </svg>
      {(schedule.windows ?? []).length > 0 && (
        <ul class="legend">
          <li>
            <svg viewBox="0 0 10 10" aria-hidden="true">
              <rect class="part0" width="10" height="10" rx="2" />
            </svg>
            {t('schedule.next')}
          </li>
          <li>
            <svg viewBox="0 0 10 10" aria-hidden="true">
              <rect class="open" width="10" height="10" />
            </svg>
            {t('schedule.windows')}
          </li>
        </ul>
      )}
    </div>
  )
}
