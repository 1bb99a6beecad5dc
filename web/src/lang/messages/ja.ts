// The messages of runs by their codes: see docs/reference/messages.md.
export const messages: Record<string, string> = {
  ROW_FAILED: '{table}：行 {row} はエラーになり、保持されます：{error}',
  ROWS_REFERENCED: '{table}: {children} の行が参照しているため、古い行 {rows} 行が保持されました',
  ROWS_FAILED: '{table}：古い行 {rows} 行がエラーになり、保持されます',
  TOO_MANY_ROWS_FAILED: '{table}：{rows} 行を超える行がエラーになったため、テーブルの残りはスキップされました',
  ROWS_LOCKED: '{table}：古い行 {rows} 行が他のセッションにロックされていたため、次回の実行に残されました',
  ROWS_DEPENDENT: '{table}: 不要な行 {rows} 件を保持しました。残すべきほかの行が外部キーで参照しています',
  NO_UNDO: '{table}: 行への変更は元に戻せません: {problem}',
  UNDO_NEEDS_OWNER:
    '{tables}: 行は別のスキーマにしか戻せません: ロールが所有者 {owner} のメンバーではありません; {statement}',
  UNDO_NEEDS_GRANT:
    '{tables}: 行を戻せません: ロールが所有者 {owner} のメンバーではなく ({statement})、スキーマも作成できません ({into_statement})',
  ROWS_RESTORED: '{table}: {rows} 行がごみ箱から戻りました',
  ROWS_EXIST: '{table}: 同じキーが再び存在するため、{rows} 行がごみ箱に残ります',
  ROWS_LEFT_IN_TRASH: '{table}: 復元の対象である {restored} の行を参照する {rows} 行がごみ箱に残っています',
  ROWS_NOT_RESTORED: '{table}: {rows} 行がごみ箱に残ります: {reasons}',
  RELATION_NOT_RESTORED: '{table} はごみ箱に残ります: {error}',
  ROWS_CASCADED: '{table}: 行とともに、外部キーが {child} の {deleted} 行を削除し、{updated} 行を変更しました',
  PARTITION_DETACHED: '{table}: パーティションの全行が不要でした: 行ごと切り離しました',
  PARTITION_NOT_DROPPED:
    '{table}: パーティションは期限より前に終わりますが削除できず、代わりに行が削除されます: {problem}',
  PARTITION_NOT_DETACHED: '{table}: パーティションは期限より前に終わりますが、切り離されません: {problem}',
  DEFAULT_PARTITION_STAYS:
    '{table}: この既定のパーティションの {rows} 行は期限より古く、残ります: 切り離されることはありません',
  PARTITIONS_TO_DETACH: '{table}: {partitions} 個のパーティションは全行が不要で、切り離されます: {names}',
  PARTITIONS_TO_DROP: '{table}: {partitions} 個のパーティションは全行が不要で、丸ごと削除されます: {names}',
  PARTITION_DROPPED: '{table}: パーティションの全行が不要でした: 削除しました',
  PARTITION_WITHOUT_RIGHTS:
    '{table}: ロールに権限がありませんが、不要な行はありえません ({reason}): スキップしました。後で必要: {grant}',
  CASCADE_HIDDEN:
    '{table}: 外部キーが行とともに {child} の行を削除または変更しますが、ロール {role} はその全行を読めません。失われる行は数えられますが、プレビューやガードでは予測できません',
  CIRCLE_HIDDEN:
    '{table}: 外部キーが {child} を経て自身に戻りますが、ロール {role} はその全行を読めず、残すべき行がともに失われるおそれがあります: スキップしました',
  TABLES_CHANGED: '{task} の処理中に {tables} が変更されました。バッチは取り消され、タスクの残りをやり直します',
  ROWS_SUPPRESSED:
    '{table}：テーブルのトリガーまたはルールが削除または更新を抑止しているか元に戻すため、古い行 {rows} 行が保持されます',
  ROWS_BYPASS_TRIGGER:
    '{table}：{parents} のルールまたは FOR EACH STATEMENT トリガーが削除を検知できないため、古い行は保持されます。パーティションまたは子テーブルに作成するか、無効にしてください',
  PARENTS_RETAINED: '{table} の {rows} 行が保持されます：{problem}',
  DEPENDENTS_RETAINED:
    '{dependents} の依存する行が保持されるため、{table} の {rows} 行も保持されます。次回の実行で両方が削除されます',
  LIST_RETAINED: 'リスト {list} は、テーブルがあればそれとともに保持されます：{error}',
  EVERYTHING_ON_HOLD: 'すべてが保留中です：{table} の {rows} 行は、属するものすべてとともに保持されます',
  HOLD_TOO_DEEP: '保留がある間、たどる数を超える外部キーを経て {last} の行に至る {table} の行は保持されます',
  HOLD_HIDDEN:
    '保留がある間、{table} のすべての行は保持されます：外部キーがこれらを {child} の行と結び付けていますが、その行は保留中の可能性があり、参照できません：{statement}',
  HOLD_UNUSABLE: '{held} の保留がある間、{table} の行は保持されます：{problem}',
  HOLD_OF_NO_ROWS: '現在これらの値を持つ {table} の行はありません。後でこの値を持つ行は保持されます',
  HOLD_LOST:
    '{held} の行の保留の対象の表がもう存在しないため、タスクとポリシーが行ごとに削除するはずのものはすべて保持されます',
  HOLD_OF_NO_TABLE: '保留の対象の表 {held} はもう存在しません：この保留は何も保持しません',
  OTHER_SERVER_ROWS_UNCOUNTED:
    '以前のレプリカの最後の {rows} 行が別のサーバーで変更されたかどうか不明なため、数えられていません：{problem}',
  REMOTE_DELIVERIES_RETAINED:
    'ミッドソーシングアカウント {account} のデータベースが設定されていません：配信 {deliveries} 件はここでのみ削除され、向こうに残ったものとして記録されます',
  JOB_LOG_NOT_WRITTEN: '{table}：ジョブログのエントリを書き込めませんでした：{error}',
  FORMS_WORKFLOW_UNKNOWN: 'データベースに {workflows} のワークフローがありません',
  FORMS_TABLE_SHARED:
    '{table} は他のワークフローのテーブルでもあります：{workflows} のプロセスインスタンスは区別できないため、保持されます',
  FORMS_TABLE_AMBIGUOUS:
    '大文字と小文字だけが異なる {table} という名前のテーブルが複数あります：{workflows} のそのプロセスインスタンスは保持されます',

  RESULT_ROWS_FAILED: '古い行 {rows} 行がエラーになりました',
  RESULT_ROWS_LOCKED: '古い行 {rows} 行が他のセッションにロックされていました',
  RESULT_ROWS_SUPPRESSED: '古い行 {rows} 行がトリガーまたはルールにより保持されています',
  RESULT_ROWS_DEPENDENT: '他の行が参照しているため、古い行 {rows} 行が保持されました',
  RESULT_ROWS_ON_HOLD: '古い行 {rows} 行が保留中です',
  RESULT_TABLES_UNFINISHED: 'テーブル {tables} 個を最後まで処理できませんでした',
  RESULT_VACUUM_FAILED: 'テーブル {tables} 個で VACUUM または ANALYZE が失敗しました',
  DEPENDENCY_FAILED: '依存するタスク {task} が成功しませんでした',

  RUN_RESUMED:
    '{reason}。レプリカ {replica} が最後にコミットされたバッチの後から続行します（進捗のない試行：最大 {limit} 回中 {attempts} 回）',
  RUN_RELEASED: 'レプリカ {replica} が実行を手放しました：{reason}',
  RUN_PAUSED: '{caller} が一時停止しました',
  RUN_AWAITS_WINDOW: 'スケジュールにより、時間帯が始まる {time} まで一時停止しています',
  RUN_OVERTAKEN: '{caller} が手動で開始した実行 {run} の終了後に、時間帯の中で続行します',
  COMMITS_NOT_MEASURED: 'コミットの所要時間を測定できないため、ペース GENTLE は固定の休止時間で動作します：{error}',
  RUN_CONTINUED: '{caller} が再開しました',
  PACE_CHANGED: '{caller} の設定により、以降のペースは {pace} です',
  STORED_HIDDEN: 'ロールはスキーマ cleanupd を読み取れません。保存されたポリシー、保留、ガードは反映されません',
  SCHEMA_PUBLISHED:
    'スキーマ cleanupd のテーブルが {publications} により公開されています。これらを持たないサブスクライバーは停止します',
  APPLICATION_CLEANUP_STARTED:
    'アプリケーションのワークフロー cleanup も開始されています。停止してください。そうしないと、2 つのサービスが 1 つのデータベースをクリーンアップします',
  GUARD_WOULD_REFUSE: 'ガード {guard} は実行を拒否します：{problem}',
  UNDO_WOULD_REFUSE: 'ごみ箱を使う実行は、これを拒否します：{problem}',
  IDLENESS_UNKNOWN: '{table} からは、アプリケーションがアイドル状態かどうか分かりません：{error}',
  TIME_ZONE_UNKNOWN:
    'タイムゾーンのない日付のゾーンが不明です：option {option} {problem}。一部のゾーンでのみ古い行は保持されます。オプションに Europe/Paris のような IANA 名を設定するか、日付がデータベースのゾーン {zone} の場合はその行を削除してください',
  SCHEMAS_NOT_CLEANED:
    'スキーマ {schema} のみがクリーンアップされ、{others} の Campaign のテーブルはされません。クリーンアップするには、そのスキーマに USAGE を持ち、search_path の先頭に指定するロールで 2 つ目のサービスを起動してください',
  OPTION_UNUSABLE: '{table} はクリーンアップされません：{error}',
  STATISTICS_OPTION_UNUSABLE: 'どのテーブルにも VACUUM を実行しません：{error}',
  LAST_CLEANUP_UNKNOWN: '前回のクリーンアップの日時が不明なため、{table} はクリーンアップされません：{problem}',
  TASK_REMOVED: '{task} はその間に削除されました：これ以上は何も行われません',
  TASK_DISABLED: '{task} はその間に無効にされました：これ以上は何も行われません',
  POLICY_CHANGED: '{task} のルールはその間に変更されました：これ以上は何も行われません',

  BATCH_HALVED: '{table}：バッチに時間がかかりすぎました。次のバッチは最大 {rows} 行です',
  BATCH_RETRIED: '{object}：{error}。最大 {attempts} 回試行します',
  BATCHES_WAIT: 'バッチが {duration} 待機しています：{cause}；{remedy}',
  STANDBY_DELAYED:
    'スタンバイ {standby} は recovery_min_apply_delay のため {lag} 遅れています：バッチはこの遅延を待ちません（--lag-ignore {standby} で最初から無視します）',
  STANDBY_STUCK:
    'スタンバイ {standby} は何も適用していないため {lag} 遅れています：適用を再開するまで、バッチは待ちません',
  REPLICA_LAG_HIDDEN:
    'このロールはスタンバイの遅延を参照できません：バッチは遅延を待ちません（GRANT pg_monitor で参照できます）',
  WAL_RETAINED: '{cause}：サーバーはそのために {size} の WAL を保持しており、行の削除中はさらに増えます；{remedy}',

  VACUUM_LOCKED: '{table} は他のセッションにロックされています：VACUUM は行われません',
  VACUUM_FAILED: '{table}：VACUUM または ANALYZE が失敗しました：{error}',
  VACUUM_UNAVAILABLE: 'VACUUM に使える接続がないため、autovacuum に任せます：{error}',
  TABLE_MOSTLY_FREE:
    '{table} は {size} で、そのうち {free} が空いています：新しい行が使用します。ディスクに返すには、pg_repack を実行するか、静かな時間に VACUUM FULL を実行してください（その間、テーブルは読めません）',
  SIZES_UNKNOWN: 'テーブルのサイズを取得できませんでした：{error}',

  TABLE_LOCKED: '{table}：他のセッションのロックをスキップできないため、テーブルの残りはスキップされました',
  TABLE_DROPPED: '{table} は実行中に削除されました：スキップ',
  TABLE_DETACHED: '{table} は実行中に {parent} から切り離されました：その行はそのまま残ります',
  TABLE_ATTACHED: '{table} は実行中に {parent} のパーティションになりました：次回の実行からクリーンアップされます',
  NOT_A_TABLE: '{table} はテーブルではありません（{kind}）：スキップ',
  ID_NOT_INTEGER:
    '{table}：ID {column} が整数ではないため、保持すべきゼロレコードが不明です：スキップ。クリーンアップするには：{statement}',
  PARTITIONS_EXPOSED:
    '行セキュリティが、パーティションまたは子テーブルでは見える {table} の行を隠している可能性があります：スキップ。ロール {role} をテーブルの所有者にするか、BYPASSRLS を付与してください',
  PAIRED_NOT_A_TABLE:
    '{table}：その行は {paired} の行とともに削除されますが、それはテーブルではありません（{kind}）：スキップ',
  ROWS_HIDDEN:
    '行セキュリティが {table} の行を隠している可能性があります：ロール {role} に見えない行と、それらによって判定される行は保持されます。ロールをテーブルの所有者にするか、BYPASSRLS を付与してください',
  TABLE_LOOKS_ALIKE:
    'テーブル {table} はこのタスクのテーブルに似ていますが（{kind}）、対象ではないため（{criterion}）、このタスクではクリーンアップされません。古い行はポリシーで削除できます：cleanupd run --older-than {table}.{column}=AGE',
  ORPHANS_UNKNOWN: '{table} の孤立した行とみなせる行はありません：{problem}。スキップ',
  PARENT_TABLE_WRITTEN:
    'トランザクションがポリシーの待ち時間より長く {table} に書き込んでいます：この実行では孤立行とみなされる行はありません',
  PARENT_TABLE_EMPTY: 'テーブル {table} が空のため、孤立した行とみなせる行はありません：スキップ',
  DELIVERIES_MISSING: '所有者によってアプリケーションのテーブルを識別するテーブル NmsDelivery がありません：スキップ',
  LISTS_HIDDEN:
    '行セキュリティが {table} の行を隠している可能性があります：名前に _grp と ID を含むテーブルは保持されます',
  MAPPINGS_MISSING: 'テーブル NmsDeliveryMapping がないため、ログテーブルを指す配信マッピングがありません',
  MAPPING_COLUMN_MISSING:
    'NmsDeliveryMapping の列 {column} がないため、そのようなログテーブルを指す配信マッピングがありません',
  MAPPING_UNUSABLE: '配信マッピングの {column} は {schema} です：{problem}。スキップ',
  NOT_A_LOG:
    '{table}（配信マッピングの {column} {schema} が指定）をスキップしました。一意キー {key} と列 {columns} が必要なログではありません',
  OTHER_SERVER_FAILED: '{table}（{location}）をクリーンアップできませんでした：{error}。残った古い行：{rows}',
  OTHER_SERVER_CLEAN: '{table}（{location}）はエラーを返しましたが、古い行は残っていません：{error}',
  UNLOGGED_NOT_COUNTED:
    '{table} は UNLOGGED です：スタンバイにその行がないため、数えられません。--preview-database-url なしのドライランでは数えられます',
  UNINDEXED_FOREIGN_KEY:
    '{table}：外部キー {key} にインデックスがないため、行を削除するたびにテーブル全体が読まれます：インデックスを作成してください',

  WORK_TABLE_NOT_DROPPED: '{table} を削除できませんでした：{error}',
  WORK_TABLES_OF_OTHERS:
    '削除されません：作業テーブルの名前を持つ未使用のリレーション {tables} 個（{example} など）の所有者は {owner} で、NmsDelivery の所有者は {application} です。{statement} により次回の実行で削除されます',
  WORK_TABLES_OF_SUPERUSER:
    '削除されません：作業テーブルの名前を持つ未使用のリレーション {tables} 個（{example} など）の所有者は、NmsDelivery と同じくスーパーユーザー postgres です。アプリケーションのテーブルに専用のロールを割り当ててください：ALTER TABLE … OWNER TO',
  WORK_TABLES_ELSEWHERE:
    '削除されません：作業テーブルの名前を持つリレーション {tables} 個（{example} など）はスキーマ {schema} にあり、NmsDelivery は {application} にあります',
  WORK_TABLES_OF_OTHER_KIND:
    '削除されません：作業テーブルの名前を持つリレーション {tables} 個（{example} など）：{kind}',
  WORK_TABLES_UNREADABLE:
    'テーブル {tables} 個は保留中の行を持つ可能性があり、読み取れませんでした：保持されます。最初のものは {table}：{error}',
  SCHEDULE_NOT_KEPT: '--schedule を指定したサーバーがないため、スケジュールされた実行は開始されません',
  SCHEDULE_REFUSED: 'ガード {guard} はスケジュールされた実行を拒否します：{problem}',
  POLICY_TABLE_PROTECTED: '{table} はポリシーの対象にできません：{problem}。スキップされました',
  POLICY_TABLE_COVERED: '{table} の行は {tasks} でも削除または更新されます。両方のルールが適用されます',
  POLICY_DROPS_NOTHING:
    'partitions: DROP は効果がありません: olderThan だけの場合に限り、{table} のパーティションの全行を境界から不要と判断できます',
  POLICY_CASCADES: '外部キーにより、{table} の行とともに {tables} の行が削除または変更されます',
  POLICY_UNPROVEN:
    'このルールはまだ実行されていません。保存されたプランに従う実行が済むまで、ガード {guard} が拒否します：{command}',
  POLICY_NOTHING_PROVEN:
    '行が1行も削除も更新もされなかったため、何も実証されていません：保存済みプランのない実行では、ガード {guard} が引き続きこのポリシーを拒否します',
  POLICY_UNUSABLE: 'このポリシーは現状では実行できません：{problem}',
  POLICY_ROWS_REFUSED:
    '現在条件に合う {table} の {rows} 行は、ON DELETE のない外部キーで参照する {tables} の行により保持されます',
  POLICY_REFUSED: '{tables} の行が、ON DELETE のない外部キーにより、参照先の {table} の行を保持します',
  POLICY_KEY_UNINDEXED:
    '{table}、またはその行とともに失われる行のテーブルへの外部キーに索引がなく、削除する行ごとにテーブル全体を読みます: {statements}',
  SEVERAL_OWNERS:
    '{table} の所有者 {owner} のコードは、{others} のテーブルへの権限も含め、サービスの権限で実行されます',
  RUN_LACKS_RIGHTS:
    'ドライランには不要な権限がロールにないため、実行するとここで失敗します。テーブルの所有者が次を実行してください: {grants}',
  POLICY_TRIGGERS:
    'トリガーはサービスのロールの権限で実行されるため、その関数に必要な権限がロールに必要です: {triggers}',
  POLICY_OF_EVERY_ROW:
    '経過期間が 0 のため、他の条件で保持されない限り、{column} が過去である {table} のすべての行が対象になります',
  POLICY_UNINDEXED:
    '{table} には keepNewest に使えるインデックスがないため、バッチごとにテーブル全体が読み取られます：{statement}',
}
