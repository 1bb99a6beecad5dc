// The messages of runs by their codes: see docs/reference/messages.md. {name|one|many} is one if name is 1.
export const messages: Record<string, string> = {
  ROW_FAILED: '{table} : la ligne {row} a provoqué une erreur et est conservée : {error}',
  ROWS_REFERENCED:
    '{table} : {rows} {rows|ligne obsolète est conservée|lignes obsolètes sont conservées} car des lignes de {children} y font référence',
  ROWS_FAILED:
    '{table} : {rows} {rows|ligne obsolète a provoqué une erreur et est conservée|lignes obsolètes ont provoqué une erreur et sont conservées}',
  TOO_MANY_ROWS_FAILED: '{table} : plus de {rows} lignes ont provoqué une erreur, le reste de la table a été ignoré',
  ROWS_LOCKED:
    '{table} : {rows} {rows|ligne obsolète était verrouillée|lignes obsolètes étaient verrouillées} par d’autres sessions ; la prochaine exécution réessaiera',
  ROWS_DEPENDENT:
    '{table} : {rows} {rows|ligne obsolète est conservée|lignes obsolètes sont conservées}, car d’autres lignes y font référence par des clés étrangères et doivent rester',
  NO_UNDO: '{table} : ce qui arrive à ses lignes ne peut pas être annulé : {problem}',
  UNDO_NEEDS_OWNER:
    '{tables} : les lignes ne peuvent revenir que dans un autre schéma : le rôle n’est pas membre de leur propriétaire {owner} ; {statement}',
  UNDO_NEEDS_GRANT:
    '{tables} : les lignes ne peuvent pas revenir : le rôle n’est pas membre de leur propriétaire {owner} ({statement}) et ne peut pas créer de schéma pour elles ({into_statement})',
  ROWS_RESTORED: '{table} : {rows} {rows|ligne est revenue|lignes sont revenues} de la corbeille',
  ROWS_EXIST:
    '{table} : {rows} {rows|ligne reste|lignes restent} dans la corbeille car {rows|sa|leur} clé existe de nouveau',
  ROWS_LEFT_IN_TRASH:
    '{table} : {rows} {rows|ligne reste|lignes restent} dans la corbeille et {rows|fait|font} référence à des lignes de {restored} à restaurer',
  ROWS_NOT_RESTORED: '{table} : {rows} {rows|ligne reste|lignes restent} dans la corbeille : {reasons}',
  RELATION_NOT_RESTORED: '{table} reste dans la corbeille : {error}',
  ROWS_CASCADED:
    '{table} : avec ses lignes, des clés étrangères ont supprimé {deleted} {deleted|ligne|lignes} de {child} et en ont modifié {updated}',
  PARTITION_DETACHED: '{table} : toutes les lignes de la partition étaient obsolètes : détachée, avec ses lignes',
  PARTITION_NOT_DROPPED:
    '{table} : la partition finit avant la date limite et n’a pas été supprimée, ses lignes le sont à sa place : {problem}',
  PARTITION_NOT_DETACHED: '{table} : la partition finit avant la date limite et n’est pas détachée : {problem}',
  DEFAULT_PARTITION_STAYS:
    '{table} : {rows} {rows|ligne|lignes} de cette partition par défaut {rows|est plus ancienne que la date limite et reste|sont plus anciennes que la date limite et restent} : elle n’est jamais détachée',
  PARTITIONS_TO_DETACH:
    '{table} : {partitions} {partitions|partition n’a|partitions n’ont} que des lignes obsolètes et {partitions|serait détachée|seraient détachées} : {names}',
  PARTITIONS_TO_DROP:
    '{table} : {partitions} {partitions|partition n’a|partitions n’ont} que des lignes obsolètes et {partitions|serait supprimée|seraient supprimées} en entier : {names}',
  PARTITION_DROPPED: '{table} : toutes les lignes de la partition étaient obsolètes : supprimée',
  PARTITION_WITHOUT_RIGHTS:
    '{table} : des droits manquent au rôle, et aucune ligne ne peut y être obsolète ({reason}) : ignorée ; plus tard : {grant}',
  CASCADE_HIDDEN:
    '{table} : des clés étrangères suppriment ou modifient des lignes de {child} avec les siennes, et le rôle {role} ne peut pas toutes les lire : ce qui part est compté, mais aucun aperçu ni garde-fou ne le prévoit',
  CIRCLE_HIDDEN:
    '{table} : des clés étrangères ramènent à la table par {child}, dont le rôle {role} ne peut pas lire toutes les lignes ; des lignes à conserver pourraient partir avec d’autres : ignorée',
  TABLES_CHANGED:
    '{tables} a changé pendant que {task} travaillait : rien du lot n’a été conservé, le reste de la tâche recommence',
  ROWS_SUPPRESSED:
    '{table} : {rows} {rows|ligne obsolète est conservée|lignes obsolètes sont conservées}, car un déclencheur ou une règle de la table empêche ou annule la suppression ou la modification',
  ROWS_BYPASS_TRIGGER:
    '{table} : des lignes obsolètes sont conservées, car une règle ou un déclencheur FOR EACH STATEMENT de {parents} ne verrait pas leur suppression : créez-le sur les partitions ou les tables filles, ou désactivez-le',
  PARENTS_RETAINED: '{rows} {rows|ligne|lignes} de {table} {rows|est conservée|sont conservées} : {problem}',
  DEPENDENTS_RETAINED:
    '{rows} {rows|ligne|lignes} de {table} {rows|est conservée|sont conservées}, car des lignes dépendantes de {dependents} le sont ; la prochaine exécution supprimera les deux',
  LIST_RETAINED: 'La liste {list} est conservée, avec sa table si elle en a une : {error}',
  EVERYTHING_ON_HOLD:
    'Tout est bloqué : {rows} {rows|ligne|lignes} de {table} {rows|est conservée|sont conservées}, avec tout ce qui en dépend',
  HOLD_TOO_DEEP:
    'Des lignes de {table} sont conservées tant qu’il y a des blocages, si plus de clés étrangères qu’il n’en est suivi mènent d’elles à des lignes de {last}',
  HOLD_HIDDEN:
    'Toutes les lignes de {table} sont conservées tant qu’il y a des blocages : des clés étrangères les relient à des lignes de {child}, peut-être bloquées et non visibles : {statement}',
  HOLD_UNUSABLE: 'Des lignes de {table} sont conservées tant qu’il y a un blocage de {held} : {problem}',
  HOLD_OF_NO_ROWS:
    'Aucune ligne de {table} n’a ces valeurs actuellement ; le blocage conserve les lignes qui les auront plus tard',
  HOLD_LOST:
    'Tout ce que les tâches et les règles supprimeraient ligne par ligne est conservé, car la table du blocage des lignes de {held} n’existe plus',
  HOLD_OF_NO_TABLE: 'Un blocage porte sur la table {held}, qui n’existe plus : il ne conserve rien',
  OTHER_SERVER_ROWS_UNCOUNTED:
    'On ne sait pas si les {rows} dernières lignes d’un réplica précédent ont été modifiées sur un autre serveur ; elles ne sont pas comptées : {problem}',
  REMOTE_DELIVERIES_RETAINED:
    'Aucune base n’est configurée pour le compte de mid-sourcing {account} : {deliveries} {deliveries|diffusion est supprimée|diffusions sont supprimées} ici seulement, et {deliveries|notée|notées} comme restant là-bas',
  JOB_LOG_NOT_WRITTEN: '{table} : des entrées du journal des tâches n’ont pas pu être écrites : {error}',
  FORMS_WORKFLOW_UNKNOWN: 'La base ne connaît aucun workflow de {workflows}',
  FORMS_TABLE_SHARED:
    '{table} est aussi la table d’autres workflows : les instances de processus de {workflows} ne peuvent pas être distinguées et sont conservées',
  FORMS_TABLE_AMBIGUOUS:
    'Plusieurs tables s’appellent {table}, en majuscules et en minuscules : ses instances de processus de {workflows} sont conservées',

  RESULT_ROWS_FAILED: '{rows} {rows|ligne obsolète a|lignes obsolètes ont} provoqué une erreur',
  RESULT_ROWS_LOCKED:
    '{rows} {rows|ligne obsolète était verrouillée|lignes obsolètes étaient verrouillées} par d’autres sessions',
  RESULT_ROWS_SUPPRESSED:
    '{rows} {rows|ligne obsolète est conservée|lignes obsolètes sont conservées} par un déclencheur ou une règle',
  RESULT_ROWS_DEPENDENT:
    '{rows} {rows|ligne obsolète est conservée|lignes obsolètes sont conservées} car d’autres lignes y font référence',
  RESULT_ROWS_ON_HOLD: '{rows} {rows|ligne obsolète est bloquée|lignes obsolètes sont bloquées}',
  RESULT_TABLES_UNFINISHED: '{tables} {tables|table n’a|tables n’ont} pas pu être traitée{tables||s} jusqu’au bout',
  RESULT_VACUUM_FAILED: 'VACUUM ou ANALYZE a échoué sur {tables} {tables|table|tables}',
  DEPENDENCY_FAILED: 'La tâche dépend de la tâche {task}, qui n’a pas réussi',

  RUN_RESUMED:
    '{reason} ; le réplica {replica} continue après le dernier lot validé (tentatives sans progrès : {attempts} sur {limit} au plus)',
  RUN_RELEASED: 'Le réplica {replica} a abandonné l’exécution : {reason}',
  RUN_PAUSED: 'Mise en pause par {caller}',
  RUN_AWAITS_WINDOW: 'Mise en pause par la planification jusqu’à l’ouverture de sa plage horaire : {time}',
  RUN_OVERTAKEN: 'Reprendra dans sa plage horaire, et après l’exécution {run} lancée manuellement par {caller}',
  COMMITS_NOT_MEASURED:
    'La durée des commits ne peut pas être mesurée, donc la cadence GENTLE utilise des pauses fixes : {error}',
  RUN_CONTINUED: 'Reprise par {caller}',
  PACE_CHANGED: 'La cadence est désormais {pace}, définie par {caller}',
  STORED_HIDDEN:
    'le rôle ne peut pas lire le schéma cleanupd : politiques, blocages et garde-fous enregistrés ne sont pas pris en compte',
  SCHEMA_PUBLISHED:
    'les tables du schéma cleanupd sont publiées par {publications} : un abonné qui ne les a pas s’arrête',
  APPLICATION_CLEANUP_STARTED:
    'Le workflow cleanup de l’application est démarré lui aussi : arrêtez-le, sinon deux services nettoient une même base',
  GUARD_WOULD_REFUSE: 'Le garde-fou {guard} refuserait une exécution : {problem}',
  UNDO_WOULD_REFUSE: 'Avec la corbeille, une exécution refuserait ceci : {problem}',
  IDLENESS_UNKNOWN: '{table} ne permet pas de savoir si l’application est inactive : {error}',
  TIME_ZONE_UNKNOWN:
    'Le fuseau des dates sans fuseau horaire n’est pas connu : option {option} {problem}. Les lignes obsolètes dans certains fuseaux seulement sont conservées. Donnez à l’option un nom IANA, tel que Europe/Paris, ou supprimez sa ligne si les dates sont dans le fuseau de la base, {zone}',
  SCHEMAS_NOT_CLEANED:
    'Seul le schéma {schema} est nettoyé, les tables de Campaign dans {others} ne le sont pas : pour celles-ci, lancez un second service avec un rôle qui a USAGE sur leur schéma et l’a en tête de son search_path',
  OPTION_UNUSABLE: '{table} n’est pas nettoyée : {error}',
  STATISTICS_OPTION_UNUSABLE: 'VACUUM n’est exécuté sur aucune table : {error}',
  LAST_CLEANUP_UNKNOWN: '{table} n’est pas nettoyée, car la date du dernier nettoyage n’est pas connue : {problem}',
  TASK_REMOVED: '{task} a été retirée entre-temps : rien de plus n’en est fait',
  TASK_DISABLED: '{task} a été désactivée entre-temps : rien de plus n’en est fait',
  POLICY_CHANGED: 'La règle de {task} a été modifiée entre-temps : rien de plus n’en est fait',

  BATCH_HALVED: '{table} : un lot a duré trop longtemps ; les suivants ont au plus {rows} {rows|ligne|lignes}',
  BATCH_RETRIED: '{object} : {error} ; {attempts} tentatives au plus',
  BATCHES_WAIT: 'Les lots attendent depuis {duration} : {cause} ; {remedy}',
  STANDBY_DELAYED:
    'Le standby {standby} a un retard de {lag} à cause de recovery_min_apply_delay : les lots n’attendent pas ce délai (--lag-ignore {standby} l’ignorerait dès le début)',
  STANDBY_STUCK:
    'Le standby {standby} a un retard de {lag}, car il n’applique rien : les lots ne l’attendent pas jusqu’à ce qu’il le fasse',
  REPLICA_LAG_HIDDEN:
    'Ce rôle ne peut pas voir le retard des standbys : les lots ne l’attendent pas (GRANT pg_monitor le permettrait)',
  WAL_RETAINED:
    '{cause} : le serveur garde {size} de WAL pour cela, et davantage pendant que des lignes sont supprimées ; {remedy}',

  VACUUM_LOCKED: '{table} est verrouillée par une autre session : pas de VACUUM',
  VACUUM_FAILED: '{table} : VACUUM ou ANALYZE a échoué : {error}',
  VACUUM_UNAVAILABLE: 'Aucune connexion n’est libre pour VACUUM, qui est laissé à autovacuum : {error}',
  TABLE_MOSTLY_FREE:
    '{table} occupe {size}, dont {free} libres : de nouvelles lignes les utiliseront. Pour les rendre au disque, lancez pg_repack, ou VACUUM FULL à une heure calme (personne ne peut lire la table pendant ce temps)',
  SIZES_UNKNOWN: 'La taille des tables n’a pas pu être déterminée : {error}',

  TABLE_LOCKED:
    '{table} : les verrous d’autres sessions n’ont pas pu être ignorés, le reste de la table a donc été laissé',
  TABLE_DROPPED: '{table} a été supprimée pendant l’exécution : ignorée',
  TABLE_DETACHED: '{table} a été détachée de {parent} pendant l’exécution : ses lignes restent intactes',
  TABLE_ATTACHED:
    '{table} est devenue une partition de {parent} pendant l’exécution : elle est nettoyée à partir de la prochaine',
  NOT_A_TABLE: '{table} n’est pas une table ({kind}) : ignorée',
  ID_NOT_INTEGER:
    '{table} : son identifiant {column} n’est pas un entier, l’enregistrement zéro, qui doit être conservé, n’est donc pas connu : ignorée. Pour que la table soit nettoyée : {statement}',
  PARTITIONS_EXPOSED:
    'La sécurité au niveau des lignes peut cacher des lignes de {table} que ses partitions ou tables filles montrent : ignorée. Faites du rôle {role} le propriétaire de la table, ou donnez-lui BYPASSRLS',
  PAIRED_NOT_A_TABLE:
    '{table} : ses lignes sont supprimées avec celles de {paired}, qui n’est pas une table ({kind}) : ignorée',
  ROWS_HIDDEN:
    'La sécurité au niveau des lignes peut cacher des lignes de {table} : les lignes que le rôle {role} ne voit pas, et celles qui sont jugées d’après elles, sont conservées. Faites-en le propriétaire de la table, ou donnez-lui BYPASSRLS',
  TABLE_LOOKS_ALIKE:
    'La table {table} ressemble à celles de cette tâche ({kind}), mais n’en fait pas partie ({criterion}) : la tâche n’y touche pas. Une règle de conservation peut supprimer ses anciennes lignes : cleanupd run --older-than {table}.{column}=AGE',
  ORPHANS_UNKNOWN: 'Aucune ligne n’est considérée comme orpheline de {table} : {problem} ; ignoré',
  PARENT_TABLE_WRITTEN:
    'Une transaction écrit dans {table} depuis plus longtemps que la règle n’attend : aucune ligne n’en est orpheline dans cette exécution',
  PARENT_TABLE_EMPTY: 'La table {table} est vide, aucune ligne n’en est donc considérée comme orpheline : ignoré',
  DELIVERIES_MISSING:
    'La table NmsDelivery, dont le propriétaire identifie les tables de l’application, est absente : ignoré',
  LISTS_HIDDEN:
    'La sécurité au niveau des lignes peut cacher des lignes de {table} : les tables dont le nom contient _grp et un identifiant sont conservées',
  MAPPINGS_MISSING:
    'La table NmsDeliveryMapping est absente, aucun mapping de diffusion ne désigne donc de table de logs',
  MAPPING_COLUMN_MISSING:
    'La colonne {column} de NmsDeliveryMapping est absente, aucun mapping de diffusion ne désigne donc une telle table de logs',
  MAPPING_UNUSABLE: '{column} d’un mapping de diffusion vaut {schema} : {problem} ; ignoré',
  NOT_A_LOG:
    '{table}, nommée par {column} {schema} d’un mapping de diffusion, a été ignorée : cette table ne contient pas de logs, qui exigent la clé unique {key} et les colonnes {columns}',
  OTHER_SERVER_FAILED: '{table} ({location}) n’a pas pu être nettoyée : {error} ; lignes obsolètes restantes : {rows}',
  OTHER_SERVER_CLEAN: '{table} ({location}) a signalé une erreur, mais aucune ligne obsolète n’y reste : {error}',
  UNLOGGED_NOT_COUNTED:
    '{table} est UNLOGGED : ses lignes ne sont pas comptées, car le standby ne les a pas ; une simulation sans --preview-database-url les compte',
  UNINDEXED_FOREIGN_KEY:
    '{table} : chaque ligne supprimée coûte la lecture de toute une table, car la clé étrangère {key} n’a pas d’index : créez-en un',

  WORK_TABLE_NOT_DROPPED: '{table} n’a pas pu être supprimée : {error}',
  WORK_TABLES_OF_OTHERS:
    'Non supprimé : {tables} {tables|relation inutilisée au nom|relations inutilisées aux noms} de table de travail, par exemple {example} : propriétaire {owner}, alors que NmsDelivery appartient à {application}. Avec {statement}, la prochaine exécution les supprimera',
  WORK_TABLES_OF_SUPERUSER:
    'Non supprimé : {tables} {tables|relation inutilisée au nom|relations inutilisées aux noms} de table de travail, par exemple {example} : le propriétaire est, comme pour NmsDelivery, le superutilisateur postgres. Donnez les tables de l’application à un rôle qui leur est propre : ALTER TABLE … OWNER TO',
  WORK_TABLES_ELSEWHERE:
    'Non supprimé : {tables} {tables|relation au nom|relations aux noms} de table de travail dans le schéma {schema}, par exemple {example}, alors que NmsDelivery est dans {application}',
  WORK_TABLES_OF_OTHER_KIND:
    'Non supprimé : {tables} {tables|relation au nom|relations aux noms} de table de travail, par exemple {example} : {kind}',
  WORK_TABLES_UNREADABLE:
    '{tables} {tables|table, qui a peut-être des lignes bloquées, n’a pas pu être lue et est conservée|tables, qui ont peut-être des lignes bloquées, n’ont pas pu être lues et sont conservées} ; la première est {table} : {error}',
  SCHEDULE_NOT_KEPT: 'Aucune exécution planifiée ne démarre, car aucun serveur ne tourne avec --schedule',
  SCHEDULE_REFUSED: 'Le garde-fou {guard} refusera les exécutions planifiées : {problem}',
  POLICY_TABLE_PROTECTED: '{table} ne peut pas être la table d’une règle de conservation : {problem} ; ignorée',
  POLICY_TABLE_COVERED:
    'Des lignes de {table} sont aussi supprimées ou modifiées par {tasks} : les deux règles s’appliquent',
  POLICY_DROPS_NOTHING:
    'partitions: DROP est sans effet : seul olderThan sans autre condition permet de juger toutes les lignes d’une partition de {table} par ses bornes',
  POLICY_CASCADES: 'Des clés étrangères suppriment ou modifient des lignes de {tables} avec les lignes de {table}',
  POLICY_UNPROVEN:
    'La règle n’a jamais été exécutée : tant qu’une exécution n’a pas suivi un plan enregistré qui la contient, le garde-fou {guard} la refuse : {command}',
  POLICY_NOTHING_PROVEN:
    'Aucune ligne n’a été supprimée ni modifiée, ce qui ne prouve rien : le garde-fou {guard} continue de refuser la règle dans les exécutions sans plan enregistré',
  POLICY_UNUSABLE: 'La règle ne peut pas être exécutée telle quelle : {problem}',
  POLICY_ROWS_REFUSED:
    '{rows} {rows|ligne|lignes} de {table} qui {rows|correspond|correspondent} maintenant {rows|est retenue|sont retenues} par des lignes de {tables} qui y font référence, par des clés étrangères sans ON DELETE',
  POLICY_REFUSED:
    'des lignes de {tables} retiennent les lignes de {table} auxquelles elles font référence, par des clés étrangères sans ON DELETE',
  POLICY_KEY_UNINDEXED:
    'des clés étrangères vers {table}, ou vers des tables dont les lignes partent avec les siennes, n’ont pas d’index ; chaque ligne supprimée coûte la lecture de toute une table : {statements}',
  SEVERAL_OWNERS:
    'le code de {owner}, propriétaire de {table}, s’exécute avec les droits du service, y compris sur les tables de {others}',
  RUN_LACKS_RIGHTS:
    'Une exécution échouerait ici, car il manque au rôle des droits dont une simulation n’a pas besoin ; un propriétaire des tables exécute : {grants}',
  POLICY_TRIGGERS:
    'Des déclencheurs s’exécutent avec les droits du rôle du service, auquel il faut ce qu’exigent leurs fonctions : {triggers}',
  POLICY_OF_EVERY_ROW:
    'L’âge est 0 : la règle concerne toute ligne de {table} dont {column} est dans le passé, sauf si une autre condition la conserve',
  POLICY_UNINDEXED: 'Aucun index de {table} ne sert à keepNewest, donc chaque lot lit toute la table : {statement}',
}
