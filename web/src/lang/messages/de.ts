// The messages of runs by their codes: see docs/reference/messages.md. {name|one|many} is one if name is 1.
export const messages: Record<string, string> = {
  ROW_FAILED: '{table}: Zeile {row} führte zu einem Fehler und bleibt erhalten: {error}',
  ROWS_REFERENCED:
    '{table}: {rows} veraltete {rows|Zeile bleibt|Zeilen bleiben} erhalten, weil Zeilen von {children} auf sie verweisen',
  ROWS_FAILED:
    '{table}: {rows} veraltete {rows|Zeile führte|Zeilen führten} zu einem Fehler und {rows|bleibt|bleiben} erhalten',
  TOO_MANY_ROWS_FAILED:
    '{table}: Mehr als {rows} Zeilen führten zu einem Fehler, daher wurde der Rest der Tabelle übersprungen',
  ROWS_LOCKED:
    '{table}: {rows} veraltete {rows|Zeile war|Zeilen waren} durch Locks anderer Sitzungen belegt; die nächste Ausführung versucht es erneut',
  ROWS_DEPENDENT:
    '{table}: {rows} veraltete {rows|Zeile bleibt|Zeilen bleiben} erhalten, weil andere Zeilen über Fremdschlüssel auf {rows|sie|sie} verweisen und bleiben müssen',
  NO_UNDO: '{table}: Was mit den Zeilen geschieht, kann nicht rückgängig gemacht werden: {problem}',
  UNDO_NEEDS_OWNER:
    '{tables}: Zeilen können nur in ein anderes Schema zurückkommen: Die Rolle ist kein Mitglied ihres Eigentümers {owner}; {statement}',
  UNDO_NEEDS_GRANT:
    '{tables}: Zeilen können nicht zurückkommen: Die Rolle ist kein Mitglied ihres Eigentümers {owner} ({statement}) und darf kein Schema für sie anlegen ({into_statement})',
  ROWS_RESTORED: '{table}: {rows} {rows|Zeile kam|Zeilen kamen} aus dem Papierkorb zurück',
  ROWS_EXIST: '{table}: {rows} {rows|Zeile bleibt|Zeilen bleiben} im Papierkorb, weil es ihren Schlüssel wieder gibt',
  ROWS_LEFT_IN_TRASH:
    '{table}: {rows} {rows|Zeile bleibt|Zeilen bleiben} im Papierkorb und {rows|verweist|verweisen} auf Zeilen von {restored}, die wiederhergestellt werden sollten',
  ROWS_NOT_RESTORED: '{table}: {rows} {rows|Zeile bleibt|Zeilen bleiben} im Papierkorb: {reasons}',
  RELATION_NOT_RESTORED: '{table} bleibt im Papierkorb: {error}',
  ROWS_CASCADED:
    '{table}: Mit den Zeilen löschten Fremdschlüssel {deleted} {deleted|Zeile|Zeilen} von {child} und änderten {updated}',
  PARTITION_DETACHED: '{table}: Alle Zeilen der Partition waren veraltet: abgehängt, mit ihren Zeilen',
  PARTITION_NOT_DROPPED:
    '{table}: Die Partition endet vor dem Stichtag und wurde nicht gelöscht, stattdessen werden ihre Zeilen gelöscht: {problem}',
  PARTITION_NOT_DETACHED: '{table}: Die Partition endet vor dem Stichtag und wird nicht abgehängt: {problem}',
  DEFAULT_PARTITION_STAYS:
    '{table}: {rows} {rows|Zeile|Zeilen} dieser Standardpartition {rows|ist|sind} älter als der Stichtag und {rows|bleibt|bleiben}: Sie wird nie abgehängt',
  PARTITIONS_TO_DETACH:
    '{table}: {partitions} {partitions|Partition hat|Partitionen haben} nur veraltete Zeilen und {partitions|würde|würden} abgehängt: {names}',
  PARTITIONS_TO_DROP:
    '{table}: {partitions} {partitions|Partition hat|Partitionen haben} nur veraltete Zeilen und {partitions|würde|würden} im Ganzen entfernt: {names}',
  PARTITION_DROPPED: '{table}: Alle Zeilen der Partition waren veraltet: entfernt',
  PARTITION_WITHOUT_RIGHTS:
    '{table}: Der Rolle fehlen Rechte, aber keine Zeile dort kann veraltet sein ({reason}): übersprungen; später: {grant}',
  CASCADE_HIDDEN:
    '{table}: Fremdschlüssel löschen oder ändern mit den Zeilen auch Zeilen von {child}, und die Rolle {role} kann dort nicht alle Zeilen lesen: was geht, wird gezählt, aber von keiner Vorschau und keinem Guard vorhergesehen',
  CIRCLE_HIDDEN:
    '{table}: Fremdschlüssel führen über {child} zur Tabelle zurück, und die Rolle {role} kann dort nicht alle Zeilen lesen, sodass Zeilen mitgehen könnten, die bleiben müssen: übersprungen',
  TABLES_CHANGED:
    '{tables} hat sich geändert, während {task} arbeitete: Vom Batch wurde nichts behalten, der Rest der Aufgabe beginnt neu',
  ROWS_SUPPRESSED:
    '{table}: {rows} veraltete {rows|Zeile bleibt|Zeilen bleiben} erhalten, weil ein Trigger oder eine Regel der Tabelle das Löschen oder Ändern unterdrückt oder rückgängig macht',
  ROWS_BYPASS_TRIGGER:
    '{table}: Veraltete Zeilen bleiben erhalten, weil eine Regel oder ein Trigger FOR EACH STATEMENT von {parents} ihr Löschen nicht sähe: auf den Partitionen oder Kindtabellen anlegen oder deaktivieren',
  PARENTS_RETAINED: '{rows} {rows|Zeile|Zeilen} von {table} {rows|bleibt|bleiben} erhalten: {problem}',
  DEPENDENTS_RETAINED:
    '{rows} {rows|Zeile|Zeilen} von {table} {rows|bleibt|bleiben} erhalten, weil abhängige Zeilen in {dependents} erhalten bleiben; die nächste Ausführung löscht beide',
  LIST_RETAINED: 'Die Liste {list} bleibt erhalten, samt ihrer Tabelle, falls sie eine hat: {error}',
  EVERYTHING_ON_HOLD:
    'Eine Sperre gilt für alles: {rows} {rows|Zeile|Zeilen} von {table} {rows|bleibt|bleiben} erhalten, mit allem, was dazugehört',
  HOLD_TOO_DEEP:
    'Zeilen von {table} bleiben erhalten, solange es Sperren gibt, wenn mehr Fremdschlüssel, als verfolgt werden, von ihnen zu Zeilen von {last} führen',
  HOLD_HIDDEN:
    'Alle Zeilen von {table} bleiben erhalten, solange es Sperren gibt: Fremdschlüssel verbinden sie mit Zeilen von {child}, die gesperrt sein können und nicht sichtbar sind: {statement}',
  HOLD_UNUSABLE: 'Zeilen von {table} bleiben erhalten, solange es eine Sperre von {held} gibt: {problem}',
  HOLD_OF_NO_ROWS: 'Keine Zeile von {table} hat derzeit diese Werte; die Sperre erhält Zeilen, die sie später bekommen',
  HOLD_LOST:
    'Alles, was Aufgaben und Richtlinien zeilenweise löschen würden, bleibt erhalten, weil es die Tabelle der Sperre von Zeilen von {held} nicht mehr gibt',
  HOLD_OF_NO_TABLE: 'Eine Sperre gilt der Tabelle {held}, die es nicht mehr gibt: Sie erhält nichts',
  OTHER_SERVER_ROWS_UNCOUNTED:
    'Es ist nicht bekannt, ob die letzten {rows} Zeilen eines früheren Replikats auf einem anderen Server geändert wurden, daher sind sie nicht gezählt: {problem}',
  REMOTE_DELIVERIES_RETAINED:
    'Für das Midsourcing-Konto {account} ist keine Datenbank konfiguriert: {deliveries} {deliveries|Sendung wird|Sendungen werden} nur hier gelöscht und als dort verblieben vermerkt',
  JOB_LOG_NOT_WRITTEN: '{table}: Einträge des Auftragsprotokolls konnten nicht geschrieben werden: {error}',
  FORMS_WORKFLOW_UNKNOWN: 'Die Datenbank kennt keinen Workflow von {workflows}',
  FORMS_TABLE_SHARED:
    '{table} ist auch die Tabelle anderer Workflows: Die Prozessinstanzen von {workflows} lassen sich nicht unterscheiden und bleiben erhalten',
  FORMS_TABLE_AMBIGUOUS:
    'Mehrere Tabellen heißen {table}, in Groß- und Kleinschreibung: Ihre Prozessinstanzen von {workflows} bleiben erhalten',

  RESULT_ROWS_FAILED: '{rows} veraltete {rows|Zeile führte|Zeilen führten} zu einem Fehler',
  RESULT_ROWS_LOCKED: '{rows} veraltete {rows|Zeile war|Zeilen waren} durch Locks anderer Sitzungen belegt',
  RESULT_ROWS_SUPPRESSED:
    '{rows} veraltete {rows|Zeile wird|Zeilen werden} von einem Trigger oder einer Regel erhalten',
  RESULT_ROWS_DEPENDENT: '{rows} veraltete {rows|Zeile hängt|Zeilen hängen} von Zeilen ab, die auf sie verweisen',
  RESULT_ROWS_ON_HOLD: '{rows} veraltete {rows|Zeile ist|Zeilen sind} gesperrt',
  RESULT_TABLES_UNFINISHED: '{tables} {tables|Tabelle konnte|Tabellen konnten} nicht fertig bearbeitet werden',
  RESULT_VACUUM_FAILED: 'VACUUM oder ANALYZE schlug bei {tables} {tables|Tabelle|Tabellen} fehl',
  DEPENDENCY_FAILED: 'Die Aufgabe hängt von {task} ab, die nicht erfolgreich war',

  RUN_RESUMED:
    '{reason}; Replikat {replica} fährt nach dem letzten abgeschlossenen Batch fort (Versuche ohne Fortschritt: {attempts} von höchstens {limit})',
  RUN_RELEASED: 'Replikat {replica} hat die Ausführung abgegeben: {reason}',
  RUN_PAUSED: 'Pausiert von {caller}',
  RUN_AWAITS_WINDOW: 'Vom Zeitplan pausiert, bis sich ihr Zeitfenster öffnet: {time}',
  RUN_OVERTAKEN: 'Geht in ihrem Zeitfenster weiter, und nach der Ausführung {run}, die {caller} von Hand gestartet hat',
  COMMITS_NOT_MEASURED:
    'Wie lange Commits dauern, ist nicht messbar, daher arbeitet das Tempo GENTLE mit festen Pausen: {error}',
  RUN_CONTINUED: 'Fortgesetzt von {caller}',
  PACE_CHANGED: 'Das Tempo ist ab jetzt {pace}, gesetzt von {caller}',
  STORED_HIDDEN:
    'Die Rolle darf das Schema cleanupd nicht lesen: gespeicherte Richtlinien, Sperren und Schutzregeln wirken nicht mit',
  SCHEMA_PUBLISHED:
    'Die Tabellen des Schemas cleanupd werden von {publications} veröffentlicht: ein Abonnent ohne sie bleibt stehen',
  APPLICATION_CLEANUP_STARTED:
    'Der Workflow „Datenbankbereinigung“ der Anwendung (cleanup) ist ebenfalls gestartet: Stoppen Sie ihn, sonst bereinigen zwei Dienste eine Datenbank',
  GUARD_WOULD_REFUSE: 'Die Schutzregel {guard} würde eine Ausführung verweigern: {problem}',
  UNDO_WOULD_REFUSE: 'Mit Papierkorb würde eine Ausführung dies verweigern: {problem}',
  IDLENESS_UNKNOWN: 'Aus {table} ist nicht ersichtlich, ob die Anwendung ruht: {error}',
  TIME_ZONE_UNKNOWN:
    'Die Zone von Datumsangaben ohne Zeitzone ist nicht bekannt: option {option} {problem}. Zeilen, die nur in manchen Zonen veraltet sind, bleiben erhalten. Setzen Sie die Option auf einen IANA-Namen wie Europe/Paris, oder löschen Sie ihre Zeile, wenn die Angaben in der Zone der Datenbank sind: {zone}',
  SCHEMAS_NOT_CLEANED:
    'Nur das Schema {schema} wird bereinigt, die Campaign-Tabellen in {others} nicht: Betreiben Sie dafür einen zweiten Dienst mit einer Rolle, die USAGE auf jenes Schema hat und es im search_path zuerst nennt',
  OPTION_UNUSABLE: '{table} wird nicht bereinigt: {error}',
  STATISTICS_OPTION_UNUSABLE: 'Für keine Tabelle läuft VACUUM: {error}',
  LAST_CLEANUP_UNKNOWN:
    '{table} wird nicht bereinigt, weil der Zeitpunkt der letzten Bereinigung nicht bekannt ist: {problem}',
  TASK_REMOVED: '{task} wurde inzwischen entfernt: nichts weiter davon geschieht',
  TASK_DISABLED: '{task} wurde inzwischen deaktiviert: nichts weiter davon geschieht',
  POLICY_CHANGED: 'Die Regel von {task} wurde inzwischen geändert: nichts weiter davon geschieht',

  BATCH_HALVED: '{table}: Ein Batch dauerte zu lange; die nächsten haben höchstens {rows} {rows|Zeile|Zeilen}',
  BATCH_RETRIED: '{object}: {error}; höchstens {attempts} Versuche',
  BATCHES_WAIT: 'Batches warten seit {duration}: {cause}; {remedy}',
  STANDBY_DELAYED:
    'Der Standby {standby} hinkt wegen recovery_min_apply_delay um {lag} nach: Batches warten darauf nicht (--lag-ignore {standby} ignoriert ihn von Anfang an)',
  STANDBY_STUCK:
    'Der Standby {standby} hinkt um {lag} nach, da er nichts anwendet: Batches warten nicht auf ihn, bis er es tut',
  REPLICA_LAG_HIDDEN:
    'Diese Rolle darf den Rückstand der Standbys nicht sehen: Batches warten nicht darauf (GRANT pg_monitor würde es erlauben)',
  WAL_RETAINED: '{cause}: Der Server hält dafür {size} WAL vor, und mehr, während Zeilen gelöscht werden; {remedy}',

  VACUUM_LOCKED: '{table} ist durch einen Lock einer anderen Sitzung belegt: kein VACUUM',
  VACUUM_FAILED: '{table}: VACUUM oder ANALYZE schlug fehl: {error}',
  VACUUM_UNAVAILABLE: 'Für VACUUM ist keine Verbindung frei, autovacuum übernimmt es: {error}',
  TABLE_MOSTLY_FREE:
    '{table} ist {size} groß, davon {free} frei: Neue Zeilen nutzen den Platz. Um ihn dem Datenträger zurückzugeben: pg_repack, oder VACUUM FULL zu ruhiger Stunde (niemand kann die Tabelle währenddessen lesen)',
  SIZES_UNKNOWN: 'Die Größen der Tabellen konnten nicht ermittelt werden: {error}',

  TABLE_LOCKED:
    '{table}: Sperren anderer Sitzungen ließen sich nicht überspringen, daher wurde der Rest der Tabelle ausgelassen',
  TABLE_DROPPED: '{table} wurde während der Ausführung entfernt: übersprungen',
  TABLE_DETACHED: '{table} wurde während der Ausführung von {parent} gelöst: Ihre Zeilen bleiben unberührt',
  TABLE_ATTACHED:
    '{table} wurde während der Ausführung eine Partition von {parent}: Sie wird ab der nächsten Ausführung bereinigt',
  NOT_A_TABLE: '{table} ist keine Tabelle ({kind}): übersprungen',
  ID_NOT_INTEGER:
    '{table}: Die Id {column} ist keine ganze Zahl, daher ist der Null-Datensatz, der erhalten bleiben muss, nicht bekannt: übersprungen. Damit die Tabelle bereinigt wird: {statement}',
  PARTITIONS_EXPOSED:
    'Row Security kann Zeilen von {table} verbergen, die ihre Partitionen oder Kindtabellen zeigen: übersprungen. Machen Sie die Rolle {role} zum Eigentümer der Tabelle, oder geben Sie ihr BYPASSRLS',
  PAIRED_NOT_A_TABLE:
    '{table}: Ihre Zeilen werden mit Zeilen von {paired} gelöscht; das ist keine Tabelle ({kind}): übersprungen',
  ROWS_HIDDEN:
    'Row Security kann Zeilen von {table} verbergen: Zeilen, die die Rolle {role} nicht sieht, und Zeilen, die nach ihnen beurteilt werden, bleiben erhalten. Machen Sie sie zum Eigentümer der Tabelle, oder geben Sie ihr BYPASSRLS',
  TABLE_LOOKS_ALIKE:
    'Die Tabelle {table} sieht aus wie eine dieser Aufgabe ({kind}), gehört aber nicht dazu ({criterion}): Die Aufgabe lässt sie unberührt. Eine Richtlinie kann ihre alten Zeilen löschen: cleanupd run --older-than {table}.{column}=AGE',
  ORPHANS_UNKNOWN: 'Keine Zeile gilt als von {table} verwaist: {problem}; übersprungen',
  PARENT_TABLE_WRITTEN:
    'Eine Transaktion schreibt länger in {table}, als die Richtlinie wartet: Keine Zeile gilt in dieser Ausführung als verwaist',
  PARENT_TABLE_EMPTY: 'Die Tabelle {table} ist leer, daher gilt keine Zeile als von ihr verwaist: übersprungen',
  DELIVERIES_MISSING:
    'Die Tabelle NmsDelivery fehlt, an deren Eigentümer die Tabellen der Anwendung zu erkennen sind: übersprungen',
  LISTS_HIDDEN:
    'Row Security kann Zeilen von {table} verbergen: Tabellen mit _grp und einer Id im Namen bleiben erhalten',
  MAPPINGS_MISSING: 'Die Tabelle NmsDeliveryMapping fehlt, daher nennt kein Versand-Mapping eine Logtabelle',
  MAPPING_COLUMN_MISSING:
    'Die Spalte {column} von NmsDeliveryMapping fehlt, daher nennt kein Versand-Mapping eine solche Logtabelle',
  MAPPING_UNUSABLE: '{column} eines Versand-Mappings ist {schema}: {problem}; übersprungen',
  NOT_A_LOG:
    '{table}, genannt von {column} {schema} eines Versand-Mappings, wurde übersprungen: Die Tabelle ist kein Log, das den eindeutigen Schlüssel {key} und die Spalten {columns} braucht',
  OTHER_SERVER_FAILED:
    '{table} ({location}) konnte nicht bereinigt werden: {error}; veraltete Zeilen, die dort bleiben: {rows}',
  OTHER_SERVER_CLEAN:
    '{table} ({location}) meldete einen Fehler, aber dort ist keine veraltete Zeile geblieben: {error}',
  UNLOGGED_NOT_COUNTED:
    '{table} ist UNLOGGED: Ihre Zeilen werden nicht gezählt, weil der Standby sie nicht hat; ein Testlauf ohne --preview-database-url zählt sie',
  UNINDEXED_FOREIGN_KEY:
    '{table}: Jede gelöschte Zeile kostet das Lesen einer ganzen Tabelle, weil der Fremdschlüssel {key} keinen Index hat: Legen Sie einen an',

  WORK_TABLE_NOT_DROPPED: '{table} konnte nicht entfernt werden: {error}',
  WORK_TABLES_OF_OTHERS:
    'Nicht entfernt: {tables} ungenutzte {tables|Relation|Relationen} mit dem Namen einer Arbeitstabelle, etwa {example}: Eigentümer {owner}, während NmsDelivery {application} gehört. {statement} lässt die nächste Ausführung sie entfernen',
  WORK_TABLES_OF_SUPERUSER:
    'Nicht entfernt: {tables} ungenutzte {tables|Relation|Relationen} mit dem Namen einer Arbeitstabelle, etwa {example}: Eigentümer ist, wie von NmsDelivery, der Superuser postgres. Geben Sie den Tabellen der Anwendung eine eigene Rolle: ALTER TABLE … OWNER TO',
  WORK_TABLES_ELSEWHERE:
    'Nicht entfernt: {tables} {tables|Relation|Relationen} mit dem Namen einer Arbeitstabelle im Schema {schema}, etwa {example}, während NmsDelivery in {application} ist',
  WORK_TABLES_OF_OTHER_KIND:
    'Nicht entfernt: {tables} {tables|Relation|Relationen} mit dem Namen einer Arbeitstabelle, etwa {example}: {kind}',
  WORK_TABLES_UNREADABLE:
    '{tables} {tables|Tabelle kann|Tabellen können} gesperrte Zeilen haben und {tables|war|waren} nicht lesbar: {tables|bleibt|bleiben} erhalten; die erste ist {table}: {error}',
  SCHEDULE_NOT_KEPT: 'Keine Ausführung startet nach dem Zeitplan, denn kein Server läuft mit --schedule',
  SCHEDULE_REFUSED: 'Die Schutzregel {guard} wird geplante Ausführungen verweigern: {problem}',
  POLICY_TABLE_PROTECTED: '{table} kann nicht die Tabelle einer Richtlinie sein: {problem}; übersprungen',
  POLICY_TABLE_COVERED: 'Zeilen von {table} werden auch von {tasks} gelöscht oder geändert: beide Regeln gelten',
  POLICY_DROPS_NOTHING:
    'partitions: DROP hat keine Wirkung: Nur mit olderThan allein können alle Zeilen einer Partition von {table} nach ihren Grenzen veraltet sein',
  POLICY_CASCADES: 'Fremdschlüssel löschen oder ändern mit Zeilen von {table} auch Zeilen von {tables}',
  POLICY_UNPROVEN:
    'Die Regel lief noch nie: Bis eine Ausführung einem gespeicherten Plan mit ihr gefolgt ist, verweigert die Schutzregel {guard} sie: {command}',
  POLICY_NOTHING_PROVEN:
    'Keine Zeile wurde gelöscht oder geändert, was nichts beweist: Die Schutzregel {guard} verweigert die Richtlinie weiterhin in Ausführungen ohne gespeicherten Plan',
  POLICY_UNUSABLE: 'Die Richtlinie kann so nicht laufen: {problem}',
  POLICY_ROWS_REFUSED:
    '{rows} {rows|Zeile|Zeilen} von {table}, die jetzt {rows|passt|passen}, {rows|wird|werden} durch Fremdschlüssel ohne ON DELETE von Zeilen von {tables} gehalten, die auf sie verweisen',
  POLICY_REFUSED:
    'Zeilen von {tables} halten Zeilen von {table}, auf die sie verweisen, durch Fremdschlüssel ohne ON DELETE',
  POLICY_KEY_UNINDEXED:
    'Fremdschlüssel auf {table} oder auf Tabellen, deren Zeilen mitgehen, haben keinen Index, sodass jede gelöschte Zeile das Lesen einer ganzen Tabelle kostet: {statements}',
  SEVERAL_OWNERS:
    'Code von {owner}, Eigentümer von {table}, läuft mit den Rechten des Dienstes, auch denen an Tabellen von {others}',
  RUN_LACKS_RIGHTS:
    'Eine Ausführung würde hier scheitern, weil der Rolle Rechte fehlen, die ein Testlauf nicht braucht; ein Eigentümer der Tabellen führt aus: {grants}',
  POLICY_TRIGGERS:
    'Trigger laufen mit den Rechten der Rolle des Dienstes; sie braucht, was deren Funktionen brauchen: {triggers}',
  POLICY_OF_EVERY_ROW:
    'Das Alter ist 0: Die Regel trifft jede Zeile von {table}, deren {column} in der Vergangenheit liegt, soweit keine andere Bedingung sie erhält',
  POLICY_UNINDEXED: 'Kein Index von {table} dient keepNewest, daher liest jeder Batch die ganze Tabelle: {statement}',
}
