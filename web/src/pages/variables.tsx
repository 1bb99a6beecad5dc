// The workflow variables to search for the user ID.
import { Field } from '../components'
import { t } from '../i18n'

export type Variable = { application: string; workflow: string; variable: string }

export function Variables({ variables, choose }: { variables: Variable[]; choose: (variables: Variable[]) => void }) {
  return (
    <>
      {variables.map((v, i) => (
        <div key={i} class="row">
          {(['application', 'workflow', 'variable'] as const).map(part => (
            <Field key={part} label={t(`userdata.${part}`)} help={t(`userdata.${part}.help`)}>
              <input
                required={part !== 'variable'}
                spellcheck={false}
                value={v[part]}
                onInput={e =>
                  choose(variables.map((other, at) => (at === i ? { ...v, [part]: e.currentTarget.value } : other)))
                }
              />
            </Field>
          ))}
          <button type="button" onClick={() => choose(variables.filter((_, at) => at !== i))}>
            {t('userdata.less')}
          </button>
        </div>
      ))}
      <p class="quiet">
        {t('userdata.variables')}{' '}
        <button type="button" onClick={() => choose([...variables, { application: '', workflow: '', variable: '' }])}>
          {t('userdata.more')}
        </button>
      </p>
    </>
  )
}
