import type { Words } from '../i18n'

export const words: Words = {
  'skip': '本文へ移動', 'navigation': 'ページ', 'language': '言語', 'loading': '読み込み中…', 'empty': '項目がありません。', 'nowhere': 'このページは存在しません。',
  'rows': '行', 'rows.title': '行数', 'table': 'テーブル', 'duration': '所要時間', 'days': '日', 'confirm.type': '確認のため {what} と入力してください',
  'action.retry': '再試行', 'action.back': '戻る', 'action.more': 'さらに表示', 'action.save': '保存', 'action.undo': '変更を破棄',
  'problem.network': 'サーバーが応答しません。', 'problem.page': 'このページでエラーが発生しました：{what}',
  'state.QUEUED': '待機中', 'state.PENDING': '未開始', 'state.RUNNING': '実行中', 'state.SUCCEEDED': '成功', 'state.FAILED': '失敗', 'state.CANCELLED': 'キャンセル済み',
  'state.SKIPPED': 'スキップ', 'state.NOT_RUN': '未実行', 'state.GOES': '削除対象', 'state.LATER': '後で削除', 'state.STAYS': '保持', 'state.UNKNOWN': '不明',
  'state.TRUE': '真', 'state.FALSE': '偽', 'state.TRIPPED': '作動', 'state.HELD': '保留中', 'state.RELEASED': '解除済み', 'state.EXPIRED': '期限切れ',
  'role.VIEWER': '閲覧者', 'role.OPERATOR': 'オペレーター', 'role.ADMIN': '管理者',

  'signin.title': 'サインイン', 'signin.intro': 'このサーバーの利用にはサインインが必要です。', 'signin.oidc': '{issuer} でサインイン', 'signin.token': 'トークン', 'signin.token.help': 'サーバーのトークンファイルのトークン、または JWT。',
  'signin.keep': 'タブを閉じるまで保持する', 'signin.go': 'サインイン', 'signin.certificate': 'このサーバーはクライアント証明書を受け付けます。ブラウザーに証明書をインストールしてください。', 'signin.out': 'サインアウト',

  'overview.title': '概要', 'overview.intro': 'Adobe Campaign データベース {database} のクリーンアップ', 'overview.welcome': 'cleanupd は、古いログ、削除された配信、残されたテーブルなど、Adobe Campaign に不要になったデータを削除します。指示があるまで何も削除されません。まずプレビューをお試しください。', 'overview.what': 'クリーンアップをプレビュー', 'overview.attention': '確認が必要です', 'overview.well': '問題はありません。',
  'overview.failed': '前回の実行で失敗したタスク：{tasks}。', 'overview.see': '実行を表示', 'overview.tripped': 'ガードが作動し、タスクが保留されています：{guards}。', 'overview.unscheduled': '実行がスケジュールされていません。',
  'overview.unkept': 'スケジュールされた実行を開始するレプリカがありません。', 'overview.invalid': '{option} の保存値は使用できません。', 'overview.stays': '期限を過ぎた {rows} 行が残っています。',
  'overview.remote': 'ミッドソーシングサーバーに配信が残っています。', 'overview.active': '実行中', 'overview.last': '前回の実行', 'overview.never': 'まだ実行されていません。', 'overview.deleted': 'クリーンアップした行数',
  'overview.inlast': '前回の実行', 'overview.next': '次回の実行', 'overview.none': 'なし', 'overview.nights': '過去 30 日間', 'overview.nonights': '過去 30 日間に実行はありません。',
  'overview.others': 'その他のタスク', 'overview.bar': '{rows} 行、{period}',

  'history.title': '履歴', 'history.intro': '何がいつ実行され、どう終わったか。', 'history.state': 'ステータス', 'history.kind': '種類', 'history.any': 'すべて', 'history.real': 'クリーンアップ', 'history.dry': 'ドライラン',
  'history.plan': 'プランによるクリーンアップ', 'history.task': 'タスク', 'history.from': '開始日', 'history.empty': '該当する実行がありません。', 'history.when': '日時', 'history.by': '要求者',

  'run.title': '実行', 'run.dry': 'ドライラン', 'run.cancel': '実行をキャンセル', 'run.cancel.help': '実行中のバッチの後で終了します。それまでに削除されたものは元に戻りません。', 'run.trouble': '接続が切れました。再接続しています。',
  'run.since': '開始：', 'run.ended': '終了：', 'run.ofplan': 'このプランによる', 'run.rate': '1 秒あたりの行数', 'run.pipeline': 'タスク', 'run.task': 'タスク', 'run.waits': '待機中：{why}', 'run.progress': '進捗',
  'run.left': '残り約 {period}', 'run.deleted': '削除', 'run.updated': '更新', 'run.dropped': '削除したテーブル', 'run.batches': 'バッチ', 'run.all': '合計', 'run.space': '領域', 'run.before': '実行前',
  'run.after': '実行後', 'run.reusable': '再利用可能', 'run.log': 'ログ', 'run.events': '{n} 件のイベント', 'run.earlier': '以前の行を表示', 'run.later': '以降の行を表示', 'run.nolog': '報告はありません。',

  'preview.title': 'プレビュー', 'preview.intro': '今クリーンアップを実行した場合に削除されるものを正確に数えます。何も変更しません。その後、そのとおりに実行できます。', 'preview.start': 'プレビューを開始', 'preview.blind': 'プレビューせずに実行…',
  'preview.unseen': '確認せずに削除しますか？', 'preview.yes': '今すぐ実行', 'preview.tasks': 'タスク', 'preview.all': 'すべて選択', 'preview.none': 'すべて解除', 'preview.what': '削除対象',
  'preview.recent': '最近のプレビュー', 'preview.norecent': 'プレビューはまだありません。', 'preview.result': '削除されるもの', 'preview.sum': '{deleted} 行が削除され、{updated} 行が更新され、{tables} 個のテーブルが削除されます：{size}。',
  'preview.guarded': '通常と異なるものが含まれています。数値が入力されるまで、ガードが拒否します。', 'preview.admin': 'これは管理者だけが行えます。', 'preview.nothing': '削除されるものはありません。', 'preview.names': '名前',
  'preview.trips': 'ガード {guard}：{number}、上限 {most}', 'preview.action': '操作', 'preview.delete': '削除', 'preview.update': '更新', 'preview.drop': 'テーブル削除', 'preview.amount': '件数',
  'preview.tables': '{n} 個のテーブル', 'preview.now': '現在', 'preview.share': 'テーブルに占める割合', 'preview.age': '最古、最新', 'preview.sample': 'サンプル', 'preview.size': 'サイズ',
  'preview.run': 'このとおりに実行', 'preview.ask': '{rows} 行が削除または更新され、{tables} 個のテーブルが削除されます。元に戻せません。', 'preview.accept': 'ガード {guard}：{number} と入力', 'preview.notstarted': '実行を開始できませんでした。',

  'retention.title': '保持期間', 'retention.intro': 'クリーンアップで削除されるまでデータを保持する期間。', 'retention.default': 'デフォルト：{days} 日。', 'retention.reset': 'デフォルトに戻す', 'retention.storage': 'ストレージの最適化',
  'retention.storage.help': 'クリーンアップ後のテーブルの処理。', 'storage.VACUUM_ANALYZE': 'VACUUM と ANALYZE', 'storage.ANALYZE': 'ANALYZE', 'storage.NONE': 'なし', 'retention.last': '前回のクリーンアップ：',
  'retention.changed': '未保存の変更：{n}', 'retention.effect': '影響を表示', 'retention.effects': '変更の影響', 'retention.whole': 'プレビュー全体', 'retention.same': '影響はありません。削除される行は同じです。',
  'retention.outdated': 'その後に変更があります。', 'retention.then': '変更後', 'retention.difference': '差', 'retention.stale': '別のユーザーがオプションを変更しました。再試行すると、その値が読み込まれ、ここでの変更は破棄されます。',
  'delay.broadLogPurgeDelayDays': '配信ログ', 'delay.broadLogPurgeDelayDays.help': '誰に何を送信し、誰を除外したか。',
  'delay.trackingLogPurgeDelayDays': 'トラッキングログ', 'delay.trackingLogPurgeDelayDays.help': '開封、クリック、Web トラッキング。',
  'delay.trackingStatPurgeDelayDays': '統合トラッキング', 'delay.trackingStatPurgeDelayDays.help': '開封とクリックの統計。',
  'delay.recycledDeliveryPurgeDelayDays': '削除された配信', 'delay.recycledDeliveryPurgeDelayDays.help': 'ユーザーが削除してから完全に削除されるまでの期間。',
  'delay.rejectsPurgeDelayDays': 'インポートの拒否', 'delay.rejectsPurgeDelayDays.help': 'インポートで取り込めなかったレコード。',
  'delay.visitorPurgeDelayDays': '訪問者プロファイル', 'delay.visitorPurgeDelayDays.help': 'Web ページの匿名の訪問者。',
  'delay.propositionPurgeDelayDays': 'オファーの提案', 'delay.propositionPurgeDelayDays.help': '誰にどのオファーを提案したか。',
  'delay.eventPurgeDelayDays': 'Message Center イベント', 'delay.eventPurgeDelayDays.help': '受信したイベント。',
  'delay.eventHistoPurgeDelayDays': 'アーカイブ済みイベント', 'delay.eventHistoPurgeDelayDays.help': 'Message Center イベントのアーカイブとそのログ。',
  'delay.auditTrailPurgeDelayDays': '監査証跡', 'delay.auditTrailPurgeDelayDays.help': 'Adobe Campaign で誰が何を変更したか。',
  'delay.appSubscriptionRcpPurgeDelayDays': 'モバイル購読', 'delay.appSubscriptionRcpPurgeDelayDays.help': '無効になったモバイルアプリの購読。',

  'schedule.title': 'スケジュール', 'schedule.intro': 'クリーンアップ全体を自動で実行する日時。', 'schedule.unkept': 'スケジュールされた実行を開始するレプリカがありません。次で有効になります：', 'schedule.enabled': '自動で実行する', 'schedule.once': '1 回のみ：', 'schedule.cron': '時刻',
  'schedule.cron.help': 'cron 式を 1 行に 1 つ：分、時、日、月、曜日。', 'schedule.zone': 'タイムゾーン', 'schedule.zone.help': 'Asia/Tokyo などの IANA 名。', 'schedule.hours': '最大時間数',
  'schedule.hours.help': 'この時間が過ぎると実行は停止し、次回の実行が続きを行います。空欄：無制限。', 'schedule.continue': 'タスクが失敗しても他のタスクを続ける', 'schedule.next': '次回以降の実行', 'schedule.none': '予定はありません。', 'schedule.week': '今後 7 日間（{zone}）',

  'guards.title': 'ガード', 'guards.intro': '通常より多く削除するタスクは、数値が入力されるまでガードが拒否します。', 'guards.tripped': '作動中', 'guards.quiet': '作動したガードはありません。', 'guards.guard': 'ガード',
  'guards.number': '予定数', 'guards.most': '上限', 'guards.when': '作動日時', 'guards.pass': 'タスクを許可するには、プレビューして数値を入力してください：', 'guards.limits': '制限', 'guards.default': 'デフォルト：{n}。',
  'guard.minProcessInstances': '最小プロセスインスタンス数', 'guard.minProcessInstances.help': 'AEM Forms のプロセスインスタンスがこれより少ない場合、share と cutoff は作動しません。', 'guard.minRows': '最小行数', 'guard.minRows.help': 'これより少ない行では share、growth、cutoff は作動しません。', 'guard.maxSharePercent': 'テーブルに占める割合（%）', 'guard.maxSharePercent.help': 'これを超えると share が作動します。',
  'guard.maxGrowth': '増加', 'guard.maxGrowth.help': '過去 400 日間で最大の実行のこの倍数を超えると growth が作動します。0：オフ。', 'guard.maxTables': '作業テーブル', 'guard.maxTables.help': '1 つのタスクがこれより多くのテーブルを削除すると tables が作動します。',
  'guard.maxDropPercent': 'データベースに占める割合（%）', 'guard.maxDropPercent.help': '削除するテーブルの領域がこれを超えると bytes が作動します。', 'guard.maxClockDifference': '時計の差（分）', 'guard.maxClockDifference.help': '時計の差がこれを超えると実行は開始されません。',
  'guard.maxIdle': '無活動期間（日）', 'guard.maxIdle.help': '復元したコピーのように最新のログがこれより古いと、実行は開始されません。', 'guard.cutoff': '基準日の急な変化を監視する',

  'holds.title': '保留', 'holds.intro': '保留したものは、ルールにかかわらず残ります。', 'holds.what': '対象', 'holds.reason': '理由', 'holds.by': '設定者', 'holds.until': '期限', 'holds.until.help': '空欄：解除されるまで。', 'holds.forever': '解除まで',
  'holds.release': '解除', 'holds.ask': '次回の実行で削除される可能性があります。', 'holds.none': '保留はありません。', 'holds.ended': '終了した保留も表示する', 'holds.uncovered': '保留対象外：{tables}', 'holds.new': '新しい保留', 'holds.hold': '保留する', 'holds.ids': 'ID', 'holds.table': 'テーブル名',
  'hold.deliveries': '配信', 'hold.deliveries.help': 'ログ、統計、ミラーページを含みます。', 'hold.lists': 'リスト', 'hold.lists.help': 'メンバーとテーブルを含みます。', 'hold.workflows': 'ワークフロー', 'hold.workflows.help': '履歴と作業テーブルを含みます。',
  'hold.recipients': '受信者', 'hold.recipients.help': '関連付けられたすべてのものを含みます。', 'hold.table': 'テーブル', 'hold.table.help': 'すべての行とテーブル自体。', 'hold.everything': 'すべて', 'hold.everything.help': 'どの実行も何も削除しません。',

  'explain.title': '説明', 'explain.intro': '行が削除される理由、または残る理由。キーは数値、または「列名=値」です。', 'explain.key': 'キー', 'explain.go': '説明を表示', 'explain.since': '削除可能日時：', 'explain.condition': '条件', 'explain.truth': '結果', 'explain.values': '値',
  'explain.gone': 'この行は存在しません。', 'explain.runs': 'このテーブルの行を削除した実行', 'explain.noruns': 'このテーブルの行を削除した実行はありません。',

  'userdata.title': 'ユーザーデータ', 'userdata.intro': 'AEM Forms ワークフローにある個人のデータを検索し、消去します。', 'userdata.id': 'ユーザー ID', 'userdata.id.help': '本人がサインインに使う ID。', 'userdata.application': 'アプリケーション', 'userdata.workflow': 'ワークフロー',
  'userdata.variable': '変数', 'userdata.variables': 'ワークフロー変数にもユーザー ID が含まれる場合があります。', 'userdata.more': '変数を追加', 'userdata.less': '削除', 'userdata.find': '検索', 'userdata.searching': '検索中…', 'userdata.receipts': '消去の記録',
  'userdata.noreceipts': '消去の記録はありません。', 'userdata.erasure': '消去', 'userdata.sweep': 'ドキュメントの整理', 'userdata.found': '検索結果：{n}', 'userdata.instances': 'プロセスインスタンス', 'userdata.instance': 'プロセスインスタンス', 'userdata.nothing': '見つかりませんでした。',
  'userdata.why': '理由', 'userdata.part': '値の一部', 'userdata.orphans': 'プロセスインスタンスのないタスク {n} 件：', 'userdata.blind': '検索できないもの', 'userdata.preview': '消去をプレビュー', 'userdata.erase': '消去', 'userdata.ask': '{n} 件のプロセスインスタンスとタスク（{rows} 行）が完全に消去されます。実行中のインスタンスは終了します。',
  'userdata.gone': '{rows} 行を消去しました。', 'userdata.receipt': '消去の記録', 'userdata.hash': 'ユーザー ID のハッシュ', 'userdata.files': 'ファイル', 'reason.INITIATOR': '開始者', 'reason.PARTICIPANT': '参加者', 'reason.VARIABLE': '変数',
  'userdata.application.help': '例：Loans。', 'userdata.workflow.help': 'フォルダーを含めます：フォルダー/ワークフロー。', 'userdata.variable.help': '空欄：すべて。', 'userdata.several': '異なるドメインの複数のユーザーがこの ID を使用しています。対象のユーザーを選択してください。', 'userdata.tasks': 'タスク', 'userdata.erased': '消去された行', 'userdata.verification': '検証', 'userdata.unverified': 'まだ検証されていません。', 'userdata.left': 'まだ見つかったもの：', 'userdata.verify': '検証', 'userdata.verify.help': '消去の記録には含まれていません。',

  'purges.title': 'AEM Forms：プロセスインスタンス', 'purges.intro': '完了または終了したプロセスインスタンスは、期間が過ぎるとタスクやドキュメントとともにパージされます。有効にする前に、ルールをプレビューしてください。', 'purges.none': 'ルールはありません。', 'purges.name': 'ルール名', 'purges.name.help': 'a–z、0–9、-', 'purges.older': '保持期間', 'purges.days': '保持期間（日数）', 'purges.column': '日付の列', 'purges.column.help': 'tb_process_instance の列。', 'purges.on': '有効', 'purges.remove': 'ルール {name} を削除しますか？', 'purges.preview': 'ルールをプレビュー', 'purges.create': 'ルールを作成',

  'audit.title': '監査', 'audit.intro': '誰が変更または消去を行ったか。', 'audit.who': '実行者', 'audit.what': '内容', 'audit.result': '結果', 'audit.details': '詳細', 'audit.empty': 'まだ記録がありません。',

  'about.title': '情報', 'about.you': 'あなた', 'about.name': '名前', 'about.anonymous': '名前なし', 'about.role': 'ロール', 'about.by': '認証方法', 'about.address': 'アドレス', 'about.server': 'サーバー', 'about.version': 'バージョン', 'about.instance': 'インスタンス', 'about.noinstance': '名前なし',
  'about.database': 'データベース', 'about.userdata': 'ユーザーデータ', 'about.on': 'オン', 'about.off': 'オフ。有効にするには：', 'about.history': '実行の保持期間', 'about.plans': 'プレビューの有効期間', 'about.api': 'API', 'about.replicas': 'レプリカ', 'about.this': '接続先', 'about.keeps': '実行を開始',
  'about.started': '開始', 'about.seen': '最終確認', 'about.leftovers': 'ミッドソーシングサーバーに残っているもの', 'about.leftovers.help': 'ここでは削除され、相手側では削除できなかった配信。', 'about.noleftovers': '残っているものはありません。', 'about.account': 'アカウント', 'about.delivery': '配信', 'about.remote': '相手側の ID',
}
