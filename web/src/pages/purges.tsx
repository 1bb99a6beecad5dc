// Retention rules for process instances of AEM Forms.
import { useState } from 'preact/hooks'
import { call, query, type Purge } from '../api'
import {
  Code,
  Confirm,
  Field,
  isStale,
  Problem,
  SaveProblem,
  Section,
  Show,
  Table,
  useAction,
  useLoad,
} from '../components'
import { number, t } from '../i18n'
import { start } from '../follow'

const pathOf = (purge: Partial<Purge>) => `/v1/forms/purges/${encodeURIComponent(purge.name!)}`
const set = (purge: Partial<Purge>) => call('PUT', pathOf(purge), purge)

export function Purges() {
  const loaded = useLoad(signal => call<{ purges: Purge[] }>('GET', '/v1/forms/purges', undefined, signal), [])
  const [removing, setRemoving] = useState<Purge>()
  const { busy, problem, act } = useAction()
  const change = (purge: Purge, enabled: boolean) =>
    act(async () => {
      await call('PATCH', pathOf(purge), { enabled, etag: purge.etag })
      loaded.reload()
    })
  const preview = (purge: Purge) =>
    act(async () => {
      location.hash = `#/runs/${await start({ dryRun: true, tasks: [`forms/${purge.name}`] })}`
    })
  const confirming = removing && !isStale(problem)
  return (
    <Section title={t('purges.title')}>
      <p>{t('purges.intro')}</p>
      {!confirming && (
        <SaveProblem
          error={problem}
          reload={() => {
            setRemoving(undefined)
            act(async () => loaded.reload())
          }}
        />
      )}
      <Show loaded={loaded}>
        {({ purges }) => (
          <Table
            label={t('purges.title')}
            rows={purges}
            keyOf={p => p.name!}
            empty={t('purges.none')}
            columns={[
              { title: t('run.task'), cell: p => <Code>forms/{p.name}</Code> },
              {
                title: t('userdata.workflow'),
                cell: p => (
                  <Code>
                    {p.application}/{p.workflow || '*'}
                  </Code>
                ),
              },
              { title: t('purges.older'), numeric: true, cell: p => `${number(p.days)} ${t('days')}` },
              { title: t('purges.column'), cell: p => <Code>{p.dateColumn}</Code> },
              {
                title: t('purges.on'),
                cell: p => (
                  <label class="check">
                    <input
                      type="checkbox"
                      aria-label={`${t('purges.on')}: ${p.name}`}
                      checked={p.enabled}
                      onChange={e => change(p, e.currentTarget.checked)}
                    />
                  </label>
                ),
              },
              {
                title: t('preview.action'),
                cell: p => (
                  <span class="actions">
                    <button type="button" aria-disabled={busy} onClick={() => preview(p)}>
                      {t('purges.preview')}
                    </button>
                    <button type="button" onClick={() => act(async () => setRemoving(p))}>
                      {t('userdata.less')}
                    </button>
                  </span>
                ),
              },
            ]}
          />
        )}
      </Show>
      {confirming && (
        <Confirm
          title={t('purges.remove', { name: removing.name! })}
          action={t('userdata.less')}
          busy={busy}
          problem={problem}
          onClose={() => setRemoving(undefined)}
          onConfirm={() =>
            act(() => call('DELETE', query(pathOf(removing), { etag: removing.etag }))).then(done => {
              if (done) {
                setRemoving(undefined)
                loaded.reload()
              }
            })
          }
        />
      )}
      <Create done={loaded.reload} />
    </Section>
  )
}

function Create({ done }: { done: () => void }) {
  const blank = { name: '', application: '', workflow: '', dateColumn: '', days: '' }
  const [draft, setDraft] = useState(blank)
  const { busy, problem, act } = useAction()
  const field = (name: keyof typeof draft) => ({
    spellcheck: false,
    value: draft[name],
    onInput: (event: { currentTarget: { value: string } }) => setDraft({ ...draft, [name]: event.currentTarget.value }),
  })
  return (
    <form
      onSubmit={event => {
        event.preventDefault()
        act(async () => {
          await set({ ...draft, days: Number(draft.days) })
          setDraft(blank)
          done()
        })
      }}
    >
      <div class="row">
        <Field label={t('purges.name')} help={t('purges.name.help')}>
          <input required pattern="[a-z0-9\-]{1,40}" {...field('name')} />
        </Field>
        <Field label={t('userdata.application')} help={t('userdata.application.help')}>
          <input required {...field('application')} />
        </Field>
        <Field label={t('userdata.workflow')} help={t('userdata.variable.help')}>
          <input {...field('workflow')} />
        </Field>
        <Field label={t('purges.column')} help={t('purges.column.help')}>
          <input required {...field('dateColumn')} />
        </Field>
        <Field label={t('purges.days')}>
          <input required type="number" min={1} max={24855} {...field('days')} />
        </Field>
      </div>
      <Problem error={problem} />
      <button type="submit" aria-disabled={busy}>
        {t('purges.create')}
      </button>
    </form>
  )
}
