// The caller, the server and its replicas, and the remote deliveries.
import { call, query } from '../api'
import { Code, Moment, Page, Section, Show, Table, useLoad } from '../components'
import { number, period, t, type Key } from '../i18n'
import type { Context } from '../context'
import { nameOf, secondsOf } from '../runs'

type Leftover = { account: string; remoteId: string; label: string; deliveryId: string; retainTime: string }

export function About({ context: { caller, server } }: { context: Context }) {
  return (
    <Page title={t('about.title')}>
      <Section title={t('about.you')}>
        <dl>
          <dt>{t('about.name')}</dt>
          <dd>{caller.subject || t('about.anonymous')}</dd>
          <dt>{t('about.role')}</dt>
          <dd>{t(`role.${(caller.role ?? '').replace('ROLE_', '')}` as Key)}</dd>
          <dt>{t('about.by')}</dt>
          <dd lang="en">{nameOf(caller.credentialType) || '–'}</dd>
          <dt>{t('about.address')}</dt>
          <dd>{caller.address}</dd>
        </dl>
      </Section>
      <Section title={t('about.server')}>
        <dl>
          <dt>{t('about.version')}</dt>
          <dd>{server.version}</dd>
          <dt>{t('about.instance')}</dt>
          <dd>{server.instance || t('about.noinstance')}</dd>
          <dt>{t('about.database')}</dt>
          <dd>
            <Code>{server.database}</Code>
          </dd>
          {(server.userData || server.campaign) && (
            <>
              <dt>{t('about.userdata')}</dt>
              <dd>
                {server.userData ? (
                  t('about.on')
                ) : (
                  <>
                    {t('about.off')} <code>cleanupd serve --forms-database-url</code>
                  </>
                )}
              </dd>
            </>
          )}
          <dt>{t('about.history')}</dt>
          <dd>{period(secondsOf(server.history))}</dd>
          <dt>{t('about.plans')}</dt>
          <dd>{period(secondsOf(server.planMaxAge))}</dd>
          <dt>{t('about.api')}</dt>
          <dd>
            <a href="/openapi.json">OpenAPI</a>
          </dd>
        </dl>
      </Section>
      <Section title={t('about.replicas')}>
        <Table
          label={t('about.replicas')}
          rows={server.replicas ?? []}
          keyOf={r => r.name!}
          columns={[
            {
              title: t('about.name'),
              cell: r => (
                <>
                  <Code>{r.name}</Code> {r.name === server.replica && <span class="badge good">{t('about.this')}</span>}
                </>
              ),
            },
            { title: t('about.version'), cell: r => r.version },
            { title: t('schedule.title'), cell: r => (r.schedule ? t('about.keeps') : '–') },
            { title: t('about.started'), cell: r => <Moment at={r.startTime} /> },
            { title: t('about.seen'), cell: r => <Moment at={r.lastSeenTime} ago /> },
          ]}
        />
      </Section>
      {server.campaign && <Leftovers />}
    </Page>
  )
}

function Leftovers() {
  const left = useLoad(
    signal =>
      call<{ deliveries: Leftover[] }>(
        'GET',
        query('/v1/mid-sourcing/leftovers', { pageSize: 1000 }),
        undefined,
        signal,
      ),
    [],
  )
  return (
    <Section title={t('about.leftovers')}>
      <p class="quiet">{t('about.leftovers.help')}</p>
      <Show loaded={left}>
        {({ deliveries }) => (
          <Table
            label={t('about.leftovers')}
            rows={deliveries}
            keyOf={d => `${d.account} ${d.remoteId}`}
            empty={t('about.noleftovers')}
            columns={[
              { title: t('about.account'), cell: d => <Code>{d.account}</Code> },
              {
                title: t('about.delivery'),
                cell: d => (
                  <>
                    {d.label} <span class="quiet">{d.deliveryId}</span>
                  </>
                ),
              },
              { title: t('about.remote'), numeric: true, cell: d => number(d.remoteId) },
              { title: t('history.when'), cell: d => <Moment at={d.retainTime} /> },
            ]}
          />
        )}
      </Show>
    </Section>
  )
}
