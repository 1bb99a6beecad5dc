export const en = {
  'skip': 'Skip to the content', 'navigation': 'Pages', 'language': 'Language', 'loading': 'Loading …', 'empty': 'Nothing here.', 'nowhere': 'There is no such page.',
  'rows': 'rows', 'rows.title': 'Rows', 'table': 'Table', 'duration': 'Duration', 'days': 'days', 'confirm.type': 'Type {what} to confirm',
  'action.retry': 'Try again', 'action.back': 'Back', 'action.more': 'Show more', 'action.save': 'Save', 'action.undo': 'Discard changes',
  'problem.network': 'The server does not answer.', 'problem.page': 'Something on this page went wrong: {what}',
  'state.QUEUED': 'queued', 'state.PENDING': 'pending', 'state.RUNNING': 'running', 'state.SUCCEEDED': 'succeeded', 'state.FAILED': 'failed', 'state.CANCELLED': 'cancelled',
  'state.SKIPPED': 'skipped', 'state.NOT_RUN': 'not run', 'state.GOES': 'goes', 'state.LATER': 'goes later', 'state.STAYS': 'stays', 'state.UNKNOWN': 'unknown',
  'state.TRUE': 'true', 'state.FALSE': 'false', 'state.TRIPPED': 'tripped', 'state.HELD': 'held', 'state.RELEASED': 'released', 'state.EXPIRED': 'expired',
  'role.VIEWER': 'Viewer', 'role.OPERATOR': 'Operator', 'role.ADMIN': 'Administrator',

  'signin.title': 'Sign in', 'signin.intro': 'This server wants to know who you are.', 'signin.oidc': 'Sign in with {issuer}', 'signin.token': 'Token', 'signin.token.help': 'One from the server’s token file, or a JWT.',
  'signin.keep': 'Keep it until this tab is closed', 'signin.go': 'Sign in', 'signin.certificate': 'The server accepts client certificates. Install yours in the browser.', 'signin.out': 'Sign out',

  'overview.title': 'Overview', 'overview.intro': 'Cleanup of the Adobe Campaign database {database}', 'overview.welcome': 'cleanupd deletes what Adobe Campaign no longer needs: old logs, deleted deliveries, tables that were left behind. Nothing is deleted until you say so: begin with a preview.', 'overview.what': 'Preview a cleanup', 'overview.attention': 'Needs attention', 'overview.well': 'Everything is all right.',
  'overview.failed': 'The last run failed in {tasks}.', 'overview.see': 'See the run', 'overview.tripped': 'Guards tripped, and their tasks wait: {guards}.', 'overview.unscheduled': 'No runs are scheduled.',
  'overview.unkept': 'No replica starts the scheduled runs.', 'overview.invalid': 'The stored value of {option} cannot be used.', 'overview.stays': '{rows} rows are due and still there.',
  'overview.remote': 'Deliveries are left on mid-sourcing servers.', 'overview.active': 'Running now', 'overview.last': 'Last run', 'overview.never': 'There has been none yet.', 'overview.deleted': 'Rows cleaned',
  'overview.inlast': 'in the last run', 'overview.next': 'Next run', 'overview.none': 'none', 'overview.nights': 'The last 30 days', 'overview.nonights': 'No run in the last 30 days.',
  'overview.others': 'other tasks', 'overview.bar': '{rows} rows in {period}',

  'history.title': 'History', 'history.intro': 'What ran, when, and how it ended.', 'history.state': 'State', 'history.kind': 'Kind', 'history.any': 'any', 'history.real': 'cleanup', 'history.dry': 'dry run',
  'history.plan': 'cleanup by plan', 'history.task': 'Task', 'history.from': 'From', 'history.empty': 'No such run.', 'history.when': 'When', 'history.by': 'Requested by',

  'run.title': 'Run', 'run.dry': 'Dry run', 'run.cancel': 'Cancel the run', 'run.cancel.help': 'It ends after its current batches. What is deleted by then stays deleted.', 'run.trouble': 'The connection was lost; trying again.',
  'run.since': 'since', 'run.ended': 'ended', 'run.ofplan': 'by this plan', 'run.rate': 'Rows per second', 'run.pipeline': 'Tasks', 'run.task': 'Task', 'run.waits': 'waits: {why}', 'run.progress': 'Progress',
  'run.left': 'about {period} left', 'run.deleted': 'Deleted', 'run.updated': 'Updated', 'run.dropped': 'Tables dropped', 'run.batches': 'Batches', 'run.all': 'In all', 'run.space': 'Space', 'run.before': 'Before',
  'run.after': 'After', 'run.reusable': 'Reusable', 'run.log': 'Log', 'run.events': '{n} events', 'run.earlier': 'Show earlier lines', 'run.later': 'Show later lines', 'run.nolog': 'Nothing to report.',

  'preview.title': 'Preview', 'preview.intro': 'Counts exactly what a cleanup would delete now, and changes nothing. You can then run exactly that.', 'preview.start': 'Start the preview', 'preview.blind': 'Run without a preview …',
  'preview.unseen': 'Delete without looking first?', 'preview.yes': 'Run now', 'preview.tasks': 'Tasks', 'preview.all': 'Select all', 'preview.none': 'Select none', 'preview.what': 'What it removes',
  'preview.recent': 'Recent previews', 'preview.norecent': 'No preview yet.', 'preview.result': 'What would go', 'preview.sum': '{deleted} rows would be deleted, {updated} updated, {tables} tables dropped: {size}.',
  'preview.guarded': 'Some of this is unusual. Guards refuse it until somebody types the numbers.', 'preview.admin': 'Only an administrator can do that.', 'preview.nothing': 'Nothing would go.', 'preview.names': 'Names',
  'preview.trips': 'guard {guard}: {number}, {most} at most', 'preview.action': 'Action', 'preview.delete': 'delete', 'preview.update': 'update', 'preview.drop': 'drop', 'preview.amount': 'How many',
  'preview.tables': '{n} tables', 'preview.now': 'Goes now', 'preview.share': 'Share of the table', 'preview.age': 'Oldest, newest', 'preview.sample': 'Sample', 'preview.size': 'Size',
  'preview.run': 'Run exactly this', 'preview.ask': 'This deletes or updates {rows} rows and drops {tables} tables. It cannot be undone.', 'preview.accept': 'Guard {guard}: type {number}', 'preview.notstarted': 'The run did not start.',

  'retention.title': 'Retention', 'retention.intro': 'How long data is kept before a cleanup removes it.', 'retention.default': 'Default: {days} days.', 'retention.reset': 'Back to the default', 'retention.storage': 'Storage optimization',
  'retention.storage.help': 'What happens to the tables after the cleanup.', 'storage.VACUUM_ANALYZE': 'Vacuum and analyze', 'storage.ANALYZE': 'Analyze', 'storage.NONE': 'Nothing', 'retention.last': 'Last cleanup:',
  'retention.changed': 'Unsaved changes: {n}', 'retention.effect': 'Show the effect', 'retention.effects': 'Effect of the changes', 'retention.whole': 'The whole preview', 'retention.same': 'Nothing changes: the same rows would go.',
  'retention.outdated': 'You have changed something since.', 'retention.then': 'Would go then', 'retention.difference': 'Difference', 'retention.stale': 'Somebody else has changed the options. Trying again loads theirs and discards yours.',
  'delay.broadLogPurgeDelayDays': 'Delivery logs', 'delay.broadLogPurgeDelayDays.help': 'Who was sent what, and who was excluded.',
  'delay.trackingLogPurgeDelayDays': 'Tracking logs', 'delay.trackingLogPurgeDelayDays.help': 'Opens, clicks and web tracking.',
  'delay.trackingStatPurgeDelayDays': 'Consolidated tracking', 'delay.trackingStatPurgeDelayDays.help': 'Statistics of opens and clicks.',
  'delay.recycledDeliveryPurgeDelayDays': 'Deleted deliveries', 'delay.recycledDeliveryPurgeDelayDays.help': 'What users have deleted, before it is gone for good.',
  'delay.rejectsPurgeDelayDays': 'Import rejects', 'delay.rejectsPurgeDelayDays.help': 'Records that an import could not take.',
  'delay.visitorPurgeDelayDays': 'Visitor profiles', 'delay.visitorPurgeDelayDays.help': 'Anonymous visitors of web pages.',
  'delay.propositionPurgeDelayDays': 'Offer propositions', 'delay.propositionPurgeDelayDays.help': 'Which offers were proposed to whom.',
  'delay.eventPurgeDelayDays': 'Message Center events', 'delay.eventPurgeDelayDays.help': 'Events as they were received.',
  'delay.eventHistoPurgeDelayDays': 'Archived events', 'delay.eventHistoPurgeDelayDays.help': 'The archive of Message Center events, with its logs.',
  'delay.auditTrailPurgeDelayDays': 'Audit trail', 'delay.auditTrailPurgeDelayDays.help': 'Who changed what in Adobe Campaign.',
  'delay.appSubscriptionRcpPurgeDelayDays': 'Mobile subscriptions', 'delay.appSubscriptionRcpPurgeDelayDays.help': 'Disabled subscriptions of mobile apps.',

  'schedule.title': 'Schedule', 'schedule.intro': 'When the whole cleanup runs by itself.', 'schedule.unkept': 'No replica starts scheduled runs. One does with', 'schedule.enabled': 'Run automatically', 'schedule.once': 'Once, at', 'schedule.cron': 'Times',
  'schedule.cron.help': 'Cron expressions, one a line: minute, hour, day of the month, month, weekday.', 'schedule.zone': 'Time zone', 'schedule.zone.help': 'An IANA name, such as Europe/Berlin.', 'schedule.hours': 'Hours at most',
  'schedule.hours.help': 'A run stops after this time, and the next one goes on. Empty: no limit.', 'schedule.continue': 'Go on with the other tasks when one fails', 'schedule.next': 'Next runs', 'schedule.none': 'None is due.', 'schedule.week': 'The next seven days, in {zone}',

  'guards.title': 'Guards', 'guards.intro': 'Guards refuse a task that would delete more than usual, until somebody types the number.', 'guards.tripped': 'Tripped', 'guards.quiet': 'No guard has tripped.', 'guards.guard': 'Guard',
  'guards.number': 'Would go', 'guards.most': 'At most', 'guards.when': 'Since', 'guards.pass': 'To let a task pass, preview it, and type the numbers there:', 'guards.limits': 'Limits', 'guards.default': 'Default: {n}.',
  'guard.minProcessInstances': 'Smallest number of process instances', 'guard.minProcessInstances.help': 'Fewer process instances of AEM Forms trip neither share nor cutoff.', 'guard.minRows': 'Smallest number of rows', 'guard.minRows.help': 'Fewer rows trip neither share, growth nor cutoff.', 'guard.maxSharePercent': 'Share of a table, in percent', 'guard.maxSharePercent.help': 'More of a table trips share.',
  'guard.maxGrowth': 'Growth', 'guard.maxGrowth.help': 'More than this many times the largest run of the last 400 days trips growth. 0: off.', 'guard.maxTables': 'Work tables', 'guard.maxTables.help': 'More tables dropped by one task trip tables.',
  'guard.maxDropPercent': 'Share of the database, in percent', 'guard.maxDropPercent.help': 'More space in dropped tables trips bytes.', 'guard.maxClockDifference': 'Clock difference, in minutes', 'guard.maxClockDifference.help': 'If the clocks differ by more, no run starts.',
  'guard.maxIdle': 'Idle, in days', 'guard.maxIdle.help': 'If the newest log is older, as in a restored copy, no run starts.', 'guard.cutoff': 'Watch for cutoffs that jump',

  'holds.title': 'Holds', 'holds.intro': 'What is held stays, whatever the rules say.', 'holds.what': 'What', 'holds.reason': 'Reason', 'holds.by': 'By', 'holds.until': 'Until', 'holds.until.help': 'Empty: until it is released.', 'holds.forever': 'released',
  'holds.release': 'Release', 'holds.ask': 'The next run may delete it.', 'holds.none': 'Nothing is held.', 'holds.ended': 'Show ended holds, too', 'holds.uncovered': 'Not held: {tables}', 'holds.new': 'Hold something', 'holds.hold': 'Hold', 'holds.ids': 'IDs', 'holds.table': 'Name of the table',
  'hold.deliveries': 'Deliveries', 'hold.deliveries.help': 'With their logs, statistics and mirror pages.', 'hold.lists': 'Lists', 'hold.lists.help': 'With their members and tables.', 'hold.workflows': 'Workflows', 'hold.workflows.help': 'With their history and work tables.',
  'hold.recipients': 'Recipients', 'hold.recipients.help': 'With all that is linked to them.', 'hold.table': 'Table', 'hold.table.help': 'All of its rows, and the table itself.', 'hold.everything': 'Everything', 'hold.everything.help': 'No run deletes anything.',

  'explain.title': 'Explain', 'explain.intro': 'Why a row goes, or stays. Its key is a number, or COLUMN=VALUE.', 'explain.key': 'Key', 'explain.go': 'Explain', 'explain.since': 'from', 'explain.condition': 'Condition', 'explain.truth': 'Result', 'explain.values': 'Values',
  'explain.gone': 'There is no such row.', 'explain.runs': 'Runs that took rows of this table', 'explain.noruns': 'No run has taken rows of this table.',

  'userdata.title': 'User data', 'userdata.intro': 'Finds what AEM Forms workflows hold about a person, and erases it.', 'userdata.id': 'User ID', 'userdata.id.help': 'As the person signs in.', 'userdata.application': 'Application', 'userdata.workflow': 'Workflow',
  'userdata.variable': 'Variable', 'userdata.variables': 'Workflow variables may hold the user ID, too.', 'userdata.more': 'Add a variable', 'userdata.less': 'Remove', 'userdata.find': 'Find', 'userdata.searching': 'Searching …', 'userdata.receipts': 'Receipts',
  'userdata.noreceipts': 'Nothing has been erased.', 'userdata.erasure': 'erasure', 'userdata.sweep': 'document sweep', 'userdata.found': 'Found: {n}', 'userdata.instances': 'Process instances', 'userdata.instance': 'Process instance', 'userdata.nothing': 'Nothing found.',
  'userdata.why': 'Why', 'userdata.part': 'part of a value', 'userdata.orphans': '{n} tasks without a process instance:', 'userdata.blind': 'What cannot be searched', 'userdata.preview': 'Preview the erasure', 'userdata.erase': 'Erase', 'userdata.ask': '{n} process instances and tasks with {rows} rows are erased for good. Running instances are terminated.',
  'userdata.gone': 'Erased: {rows} rows.', 'userdata.receipt': 'Receipt', 'userdata.hash': 'Hash of the user ID', 'userdata.files': 'Files', 'reason.INITIATOR': 'started it', 'reason.PARTICIPANT': 'took part', 'reason.VARIABLE': 'variable',
  'userdata.application.help': 'Such as Loans.', 'userdata.workflow.help': 'With its folders: folder/workflow.', 'userdata.variable.help': 'Empty: all of them.', 'userdata.several': 'Several users, of different domains, have this ID. Who is meant?', 'userdata.tasks': 'Tasks', 'userdata.erased': 'Erased rows', 'userdata.verification': 'Verification', 'userdata.unverified': 'Not verified yet.', 'userdata.left': 'Still found:', 'userdata.verify': 'Verify', 'userdata.verify.help': 'The receipt does not contain it.',

  'purges.title': 'AEM Forms: process instances', 'purges.intro': 'Process instances that are complete or terminated go once they are old enough, with their tasks and documents. Preview a rule before you switch it on.', 'purges.none': 'There is no rule.', 'purges.name': 'Name of the rule', 'purges.name.help': 'a–z, 0–9 and -', 'purges.older': 'Older than', 'purges.days': 'Older than, in days', 'purges.column': 'Date column', 'purges.column.help': 'A column of tb_process_instance.', 'purges.on': 'On', 'purges.remove': 'Remove the rule {name}?', 'purges.preview': 'Preview the rule', 'purges.create': 'Create the rule',

  'audit.title': 'Audit', 'audit.intro': 'Who changed or erased something.', 'audit.who': 'Who', 'audit.what': 'What', 'audit.result': 'Result', 'audit.details': 'Details', 'audit.empty': 'Nothing yet.',

  'about.title': 'About', 'about.you': 'You', 'about.name': 'Name', 'about.anonymous': 'unnamed', 'about.role': 'Role', 'about.by': 'Known by', 'about.address': 'Address', 'about.server': 'Server', 'about.version': 'Version', 'about.instance': 'Instance', 'about.noinstance': 'unnamed',
  'about.database': 'Database', 'about.userdata': 'User data', 'about.on': 'on', 'about.off': 'Off. Turn it on with', 'about.history': 'Runs are kept for', 'about.plans': 'A preview can be run for', 'about.api': 'API', 'about.replicas': 'Replicas', 'about.this': 'this one', 'about.keeps': 'starts runs',
  'about.started': 'Started', 'about.seen': 'Last seen', 'about.leftovers': 'Left on mid-sourcing servers', 'about.leftovers.help': 'Deliveries that are gone here, but could not be deleted there.', 'about.noleftovers': 'Nothing is left.', 'about.account': 'Account', 'about.delivery': 'Delivery', 'about.remote': 'Remote ID',
} as const

export const words: Record<keyof typeof en, string> = en
