// For how long what a run deletes waits in the trash.
import { Field } from '../components'
import { period, t } from '../i18n'

/** Returns hours as a duration of the API; undefined if there are none, so that policies and the server decide. */
export const undoOf = (hours: string) => (hours === '' ? undefined : `${Math.round(Number(hours) * 3600)}s`)

/** Says what becomes of what is deleted. */
export function effectOf(seconds: number) {
  return seconds > 0 ? t('undo.possible', { period: period(seconds) }) : t('undo.never')
}

type Props = {
  hours: string
  /** The seconds that count if no hours are given. */
  usual: number
  /** Whether policies with their own undo follow that. */
  policies: boolean
  problem?: string
  onChange: (hours: string) => void
}

export const UndoField = ({ hours, usual, policies, problem, onChange }: Props) => (
  <Field
    label={t('undo.hours')}
    help={[effectOf(hours === '' ? usual : Number(hours) * 3600), policies && t('undo.policies')]
      .filter(Boolean)
      .join(' ')}
    problem={problem}
  >
    <input
      type="number"
      min={0}
      max={2160}
      step="any"
      aria-invalid={problem !== undefined}
      value={hours}
      onInput={e => onChange(e.currentTarget.value)}
    />
  </Field>
)
