// The pace of a run: buttons that change it while the run is active, and a field for runs that start later.
import { Field } from '../components'
import { t } from '../i18n'
import { paceOf, paces } from '../runs'

type ButtonsProps = { pace?: string; busy: boolean; onChange: (pace: string) => void }

/** Offers the paces as buttons, each of which takes effect at once. */
export function PaceButtons({ pace, busy, onChange }: ButtonsProps) {
  const current = paceOf(pace)
  return (
    <div class="pace" role="group" aria-labelledby="pace" aria-describedby="pace-help">
      <span id="pace">{t('pace')}</span>
      <span class="choice">
        {paces.map(name => (
          <button
            key={name}
            type="button"
            aria-pressed={name === current}
            aria-disabled={busy}
            onClick={() => name !== current && onChange(`PACE_${name}`)}
          >
            {t(`pace.${name}`)}
          </button>
        ))}
      </span>
      <small id="pace-help" class="quiet">
        {current && t(`pace.${current}.help`)}
      </small>
    </div>
  )
}

type SelectProps = {
  value: string
  unset: string
  problem?: string
  onChange: (pace: string) => void
}

/** Offers the paces in a form, and unset for none. */
export function PaceSelect({ value, unset, problem, onChange }: SelectProps) {
  return (
    <Field label={t('pace')} problem={problem}>
      <select value={value} aria-invalid={problem !== undefined} onChange={e => onChange(e.currentTarget.value)}>
        <option value="">{unset}</option>
        {paces.map(name => (
          <option key={name} value={`PACE_${name}`}>
            {t(`pace.${name}`)}
          </option>
        ))}
      </select>
    </Field>
  )
}
