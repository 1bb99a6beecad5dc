// The form of the schedule's windows.
import { useLayoutEffect, useRef } from 'preact/hooks'
import { Field, Violation } from '../components'
import { number, t, weekday } from '../i18n'
import { dateOf, draftOf, weekdays, type Draft } from '../windows'
import { PaceSelect } from './pace'

type Props = {
  windows: Draft[]
  change: (windows: Draft[]) => void
  /** What is wrong with their number, and with a field of one of them. */
  problem?: string
  problemOf: (window: Draft, field: string) => string | undefined
  mayChange: boolean
}

export function Windows({ windows, change, problem, problemOf, mayChange }: Props) {
  const list = useRef<HTMLFieldSetElement>(null)
  const added = useRef(false)
  // a layout effect: an effect might take the focus after the user has moved it on
  useLayoutEffect(() => {
    if (added.current) list.current!.querySelector<HTMLElement>('.window:last-of-type input')!.focus()
    added.current = false
  }, [windows.length])
  const remove = (window: Draft) => {
    change(windows.filter(w => w !== window))
    // the button that had the focus goes
    list.current!.querySelector<HTMLElement>('button.add')!.focus()
  }
  return (
    <fieldset class="windows" ref={list}>
      <legend>{t('schedule.windows')}</legend>
      <p class="quiet">{t('schedule.windows.help')}</p>
      {windows.map((window, i) => (
        <Row
          key={window.key}
          window={window}
          title={t('schedule.window', { n: number(i + 1) })}
          problemOf={field => problemOf(window, field)}
          change={changed => change(windows.map(w => (w === window ? { ...w, ...changed } : w)))}
          remove={mayChange ? () => remove(window) : undefined}
        />
      ))}
      <Violation text={problem} />
      {mayChange && (
        <p>
          <button
            type="button"
            class="add"
            onClick={() => {
              added.current = true
              change([...windows, draftOf()])
            }}
          >
            {t('schedule.add')}
          </button>
        </p>
      )}
    </fieldset>
  )
}

type RowProps = {
  window: Draft
  title: string
  problemOf: (field: string) => string | undefined
  change: (changed: Partial<Draft>) => void
  remove?: () => void
}

function Row({ window, title, problemOf, change, remove }: RowProps) {
  const { days } = window
  return (
    <div class="window" role="group" aria-label={title}>
      <div role="group" aria-label={t('schedule.days')} class="days">
        {weekdays.map(day => (
          <label class="check" key={day}>
            <input
              type="checkbox"
              checked={days.includes(day)}
              aria-invalid={problemOf('days') !== undefined}
              onChange={e =>
                change({ days: e.currentTarget.checked ? [...days, day] : days.filter(other => other !== day) })
              }
            />
            {weekday(dateOf(day))}
          </label>
        ))}
        {days.length === 0 && <span class="quiet">{t('schedule.everyday')}</span>}
        <Violation text={problemOf('days')} />
      </div>
      <div class="row">
        {(['start', 'end'] as const).map(field => (
          <Field key={field} label={t(`schedule.${field}`)} problem={problemOf(field)}>
            <input
              type="time"
              value={window[field]}
              aria-invalid={problemOf(field) !== undefined}
              onInput={e => change({ [field]: e.currentTarget.value })}
            />
          </Field>
        ))}
        <PaceSelect
          value={window.pace}
          unset={t('pace.schedule')}
          problem={problemOf('pace')}
          onChange={pace => change({ pace })}
        />
        {remove && (
          <button type="button" onClick={remove}>
            {t('userdata.less')}
          </button>
        )}
      </div>
    </div>
  )
}
