// Legal holds: the list, and the form to create one.
import { useState } from 'preact/hooks'
import { call, query, type Hold } from '../api'
import {
  Badge,
  Code,
  Confirm,
  Field,
  Moment,
  Page,
  Problem,
  Section,
  Show,
  Table,
  useAction,
  useLoad,
} from '../components'
import { number, said, t, type Key, type Message } from '../i18n'
import type { Context } from '../context'

const campaignKinds = ['deliveries', 'lists', 'workflows', 'recipients'] as const
const kinds = [...campaignKinds, 'rows', 'table', 'everything'] as const
type Kind = (typeof kinds)[number]

const kindsOf = ({ server }: Context) =>
  kinds.filter(kind => server.campaign || !campaignKinds.some(other => other === kind))

const kindOf = (hold: Hold) => kinds.find(kind => hold[kind])
const whatOf = (hold: Hold) => {
  const kind = kindOf(hold)
  if (kind === 'rows') return `${hold.rows!.table}.${hold.rows!.columns!.map(c => `${c.column}=${c.value}`).join(', ')}`
  return kind === undefined || kind === 'everything'
    ? ''
    : kind === 'table'
      ? hold.table!.name
      : hold[kind]!.ids!.join(', ')
}
const ended = (hold: Hold) =>
  hold.releaseTime ? 'RELEASED' : hold.expireTime && Date.parse(hold.expireTime) < Date.now() ? 'EXPIRED' : 'ON_HOLD'

// rowsOf reads TABLE.COLUMN=VALUE, COLUMN=VALUE. The server refuses what is missing.
const rowsOf = (text: string) => {
  const [first = '', ...others] = text.trim().split(/,\s*(?=[^,=]+=)/)
  const [, table = '', column = first] = /^([^=]*)\.(.*)$/s.exec(first) ?? []
  const columns = [column, ...others].map(of => {
    const at = of.indexOf('=')
    return { column: of.slice(0, Math.max(at, 0)).trim(), value: of.slice(at + 1) }
  })
  return { table, columns }
}

export function Holds({ context }: { context: Context }) {
  const [all, setAll] = useState(false)
  const loaded = useLoad(
    signal =>
      call<{ holds: Hold[] }>(
        'GET',
        query('/v1/holds', { includeEnded: all || undefined, pageSize: 1000 }),
        undefined,
        signal,
      ),
    [all],
  )
  const [releasing, setReleasing] = useState<Hold>()
  const { busy, problem, act } = useAction()
  return (
    <Page title={t('holds.title')} intro={t('holds.intro')}>
      <Show loaded={loaded}>
        {({ holds }) => (
          <Table
            label={t('holds.title')}
            rows={holds}
            keyOf={h => h.id!}
            empty={t('holds.none')}
            columns={[
              {
                title: t('holds.what'),
                cell: h => (
                  <>
                    {t(`hold.${kindOf(h)}` as Key)} <Code>{whatOf(h)}</Code>
                    {(h.notCovered ?? []).length > 0 && (
                      <div class="quiet">{t('holds.uncovered', { tables: h.notCovered!.join(', ') })}</div>
                    )}
                    <Warnings of={h.warnings} />
                  </>
                ),
              },
              { title: t('holds.reason'), cell: h => h.reason },
              {
                title: t('holds.by'),
                cell: h => (
                  <>
                    {h.createdBy}
                    <div class="quiet">
                      <Moment at={h.createTime} />
                    </div>
                  </>
                ),
              },
              {
                title: t('holds.until'),
                cell: h => (h.expireTime ? <Moment at={h.expireTime} /> : t('holds.forever')),
              },
              {
                title: t('history.state'),
                cell: h =>
                  ended(h) === 'ON_HOLD' ? (
                    <button type="button" onClick={() => setReleasing(h)}>
                      {t('holds.release')}
                    </button>
                  ) : (
                    <>
                      <Badge state={ended(h)} />
                      {h.releaseTime && (
                        <div class="quiet">
                          {h.releasedBy} <Moment at={h.releaseTime} />
                        </div>
                      )}
                    </>
                  ),
              },
            ]}
          />
        )}
      </Show>
      <label class="check">
        <input type="checkbox" checked={all} onChange={e => setAll(e.currentTarget.checked)} />
        {t('holds.ended')}
      </label>
      {releasing && (
        <Confirm
          title={t('holds.release')}
          action={t('holds.release')}
          busy={busy}
          problem={problem}
          onClose={() => setReleasing(undefined)}
          onConfirm={() =>
            act(() => call('POST', `/v1/holds/${releasing.id}:release`)).then(done => {
              if (done) {
                setReleasing(undefined)
                loaded.reload()
              }
            })
          }
        >
          <p>{t('holds.ask')}</p>
          <p>
            {t(`hold.${kindOf(releasing)}` as Key)} <Code>{whatOf(releasing)}</Code>
          </p>
        </Confirm>
      )}
      <Section title={t('holds.new')}>
        <Create kinds={kindsOf(context)} done={loaded.reload} />
      </Section>
    </Page>
  )
}

const Warnings = ({ of = [] }: { of?: Message[] }) => (
  <>
    {of.map(said).map(({ text, lang }) => (
      <p key={text} class="notice" lang={lang}>
        {text}
      </p>
    ))}
  </>
)

type Created = { rowsNow?: string; warnings?: Message[] }

function Create({ kinds, done }: { kinds: Kind[]; done: () => void }) {
  const blank = { what: '', reason: '', until: '' }
  const [kind, setKind] = useState(kinds[0]!)
  const [draft, setDraft] = useState(blank)
  const [created, setCreated] = useState<Created>()
  const { busy, problem, act } = useAction()
  const change = (name: keyof typeof draft) => (event: { currentTarget: { value: string } }) =>
    setDraft({ ...draft, [name]: event.currentTarget.value })
  const hold = () =>
    act(async () => {
      const what =
        kind === 'everything'
          ? {}
          : kind === 'table'
            ? { name: draft.what.trim() }
            : kind === 'rows'
              ? rowsOf(draft.what)
              : { ids: draft.what.split(/[\s,]+/).filter(id => id !== '') }
      setCreated(undefined)
      const made = await call<Created>('POST', '/v1/holds', {
        [kind]: what,
        reason: draft.reason,
        expireTime: draft.until ? new Date(draft.until).toISOString() : undefined,
      })
      setCreated(made)
      setDraft(blank)
      done()
    })
  return (
    <form
      onSubmit={event => {
        event.preventDefault()
        hold()
      }}
    >
      <Field label={t('holds.what')} help={t(`hold.${kind}.help` as Key)}>
        <select value={kind} onChange={e => setKind(e.currentTarget.value as Kind)}>
          {kinds.map(k => (
            <option key={k} value={k}>
              {t(`hold.${k}` as Key)}
            </option>
          ))}
        </select>
      </Field>
      {kind !== 'everything' && (
        <Field label={t(kind === 'table' || kind === 'rows' ? `holds.${kind}` : 'holds.ids')}>
          <input required spellcheck={false} value={draft.what} onInput={change('what')} />
        </Field>
      )}
      <Field label={t('holds.reason')}>
        <input required value={draft.reason} onInput={change('reason')} />
      </Field>
      <Field label={t('holds.until')} help={t('holds.until.help')}>
        <input type="datetime-local" value={draft.until} onInput={change('until')} />
      </Field>
      <Problem error={problem} />
      {Number(created?.rowsNow) > 0 && <p>{t('holds.now', { rows: number(created!.rowsNow) })}</p>}
      <Warnings of={created?.warnings} />
      <button type="submit" class="primary" aria-disabled={busy}>
        {t('holds.hold')}
      </button>
    </form>
  )
}
