import type { Words } from '../i18n'

export const words: Words = {
  'skip': 'Zum Inhalt springen', 'navigation': 'Seiten', 'language': 'Sprache', 'loading': 'Wird geladen …', 'empty': 'Keine Einträge.', 'nowhere': 'Diese Seite gibt es nicht.',
  'rows': 'Zeilen', 'rows.title': 'Zeilen', 'table': 'Tabelle', 'duration': 'Dauer', 'days': 'Tage', 'confirm.type': 'Zur Bestätigung {what} eingeben',
  'action.retry': 'Erneut versuchen', 'action.back': 'Zurück', 'action.more': 'Mehr anzeigen', 'action.save': 'Speichern', 'action.undo': 'Änderungen verwerfen',
  'problem.network': 'Der Server antwortet nicht.', 'problem.page': 'Auf dieser Seite ist etwas schiefgegangen: {what}',
  'state.QUEUED': 'in Warteschlange', 'state.PENDING': 'ausstehend', 'state.RUNNING': 'läuft', 'state.SUCCEEDED': 'erfolgreich', 'state.FAILED': 'fehlgeschlagen', 'state.CANCELLED': 'abgebrochen',
  'state.SKIPPED': 'übersprungen', 'state.NOT_RUN': 'nicht ausgeführt', 'state.GOES': 'wird gelöscht', 'state.LATER': 'wird später gelöscht', 'state.STAYS': 'bleibt', 'state.UNKNOWN': 'unbekannt',
  'state.TRUE': 'wahr', 'state.FALSE': 'falsch', 'state.TRIPPED': 'ausgelöst', 'state.HELD': 'gesperrt', 'state.RELEASED': 'aufgehoben', 'state.EXPIRED': 'abgelaufen',
  'role.VIEWER': 'Betrachter', 'role.OPERATOR': 'Operator', 'role.ADMIN': 'Administrator',

  'signin.title': 'Anmelden', 'signin.intro': 'Dieser Server verlangt eine Anmeldung.', 'signin.oidc': 'Mit {issuer} anmelden', 'signin.token': 'Token', 'signin.token.help': 'Aus der Token-Datei des Servers oder ein JWT.',
  'signin.keep': 'Behalten, bis der Tab geschlossen wird', 'signin.go': 'Anmelden', 'signin.certificate': 'Der Server akzeptiert Clientzertifikate. Installieren Sie Ihres im Browser.', 'signin.out': 'Abmelden',

  'overview.title': 'Übersicht', 'overview.intro': 'Bereinigung der Adobe-Campaign-Datenbank {database}', 'overview.welcome': 'cleanupd löscht, was Adobe Campaign nicht mehr braucht: alte Logs, gelöschte Sendungen, zurückgelassene Tabellen. Ohne Ihre Anweisung wird nichts gelöscht. Beginnen Sie mit einer Vorschau.', 'overview.what': 'Bereinigung vorab prüfen', 'overview.attention': 'Bitte prüfen', 'overview.well': 'Alles in Ordnung.',
  'overview.failed': 'Die letzte Ausführung ist fehlgeschlagen: {tasks}.', 'overview.see': 'Ausführung ansehen', 'overview.tripped': 'Schutzregeln haben ausgelöst, ihre Aufgaben warten: {guards}.', 'overview.unscheduled': 'Es sind keine Ausführungen geplant.',
  'overview.unkept': 'Kein Replikat startet die geplanten Ausführungen.', 'overview.invalid': 'Der gespeicherte Wert von {option} ist nicht verwendbar.', 'overview.stays': '{rows} fällige Zeilen sind noch da.',
  'overview.remote': 'Auf Midsourcing-Servern sind Sendungen zurückgeblieben.', 'overview.active': 'Läuft gerade', 'overview.last': 'Letzte Ausführung', 'overview.never': 'Bisher gab es keine.', 'overview.deleted': 'Bereinigte Zeilen',
  'overview.inlast': 'bei der letzten Ausführung', 'overview.next': 'Nächste Ausführung', 'overview.none': 'keine', 'overview.nights': 'Die letzten 30 Tage', 'overview.nonights': 'Keine Ausführung in den letzten 30 Tagen.',
  'overview.others': 'andere Aufgaben', 'overview.bar': '{rows} Zeilen in {period}',

  'history.title': 'Verlauf', 'history.intro': 'Was wann ausgeführt wurde und mit welchem Ergebnis.', 'history.state': 'Status', 'history.kind': 'Art', 'history.any': 'alle', 'history.real': 'Bereinigung', 'history.dry': 'Testlauf',
  'history.plan': 'Bereinigung nach Plan', 'history.task': 'Aufgabe', 'history.from': 'Ab', 'history.empty': 'Keine passende Ausführung.', 'history.when': 'Wann', 'history.by': 'Angefordert von',

  'run.title': 'Ausführung', 'run.dry': 'Testlauf', 'run.cancel': 'Ausführung abbrechen', 'run.cancel.help': 'Sie endet nach den laufenden Batches. Was bis dahin gelöscht ist, bleibt gelöscht.', 'run.trouble': 'Die Verbindung ist unterbrochen und wird wiederhergestellt.',
  'run.since': 'seit', 'run.ended': 'beendet', 'run.ofplan': 'nach diesem Plan', 'run.rate': 'Zeilen pro Sekunde', 'run.pipeline': 'Aufgaben', 'run.task': 'Aufgabe', 'run.waits': 'wartet: {why}', 'run.progress': 'Fortschritt',
  'run.left': 'noch etwa {period}', 'run.deleted': 'Gelöscht', 'run.updated': 'Geändert', 'run.dropped': 'Entfernte Tabellen', 'run.batches': 'Batches', 'run.all': 'Gesamt', 'run.space': 'Speicherplatz', 'run.before': 'Vorher',
  'run.after': 'Nachher', 'run.reusable': 'Wiederverwendbar', 'run.log': 'Protokoll', 'run.events': '{n} Ereignisse', 'run.earlier': 'Frühere Zeilen anzeigen', 'run.later': 'Spätere Zeilen anzeigen', 'run.nolog': 'Keine Meldungen.',

  'preview.title': 'Vorschau', 'preview.intro': 'Zählt genau, was eine Bereinigung jetzt löschen würde, und ändert nichts. Danach lässt sich genau das ausführen.', 'preview.start': 'Vorschau starten', 'preview.blind': 'Ohne Vorschau ausführen …',
  'preview.unseen': 'Ohne vorherige Prüfung löschen?', 'preview.yes': 'Jetzt ausführen', 'preview.tasks': 'Aufgaben', 'preview.all': 'Alle auswählen', 'preview.none': 'Keine auswählen', 'preview.what': 'Was sie entfernt',
  'preview.recent': 'Letzte Vorschauen', 'preview.norecent': 'Noch keine Vorschau.', 'preview.result': 'Was gelöscht würde', 'preview.sum': '{deleted} Zeilen würden gelöscht, {updated} geändert, {tables} Tabellen entfernt: {size}.',
  'preview.guarded': 'Ein Teil davon ist ungewöhnlich. Schutzregeln verweigern ihn, bis jemand die Zahlen eingibt.', 'preview.admin': 'Das kann nur ein Administrator.', 'preview.nothing': 'Nichts würde gelöscht.', 'preview.names': 'Namen',
  'preview.trips': 'Schutzregel {guard}: {number}, höchstens {most}', 'preview.action': 'Aktion', 'preview.delete': 'löschen', 'preview.update': 'ändern', 'preview.drop': 'Tabelle entfernen', 'preview.amount': 'Anzahl',
  'preview.tables': '{n} Tabellen', 'preview.now': 'Jetzt', 'preview.share': 'Anteil an der Tabelle', 'preview.age': 'Älteste, neueste', 'preview.sample': 'Stichprobe', 'preview.size': 'Größe',
  'preview.run': 'Genau das ausführen', 'preview.ask': '{rows} Zeilen werden gelöscht oder geändert und {tables} Tabellen entfernt. Das lässt sich nicht rückgängig machen.', 'preview.accept': 'Schutzregel {guard}: {number} eingeben', 'preview.notstarted': 'Die Ausführung wurde nicht gestartet.',

  'retention.title': 'Aufbewahrung', 'retention.intro': 'Wie lange Daten aufbewahrt werden, bevor eine Bereinigung sie entfernt.', 'retention.default': 'Standard: {days} Tage.', 'retention.reset': 'Auf Standard zurücksetzen', 'retention.storage': 'Speicheroptimierung',
  'retention.storage.help': 'Was nach der Bereinigung mit den Tabellen geschieht.', 'storage.VACUUM_ANALYZE': 'Vacuum und Analyze', 'storage.ANALYZE': 'Analyze', 'storage.NONE': 'Nichts', 'retention.last': 'Letzte Bereinigung:',
  'retention.changed': 'Nicht gespeicherte Änderungen: {n}', 'retention.effect': 'Auswirkung anzeigen', 'retention.effects': 'Auswirkung der Änderungen', 'retention.whole': 'Ganze Vorschau', 'retention.same': 'Keine Auswirkung: Es würden dieselben Zeilen gelöscht.',
  'retention.outdated': 'Seitdem wurde etwas geändert.', 'retention.then': 'Danach', 'retention.difference': 'Differenz', 'retention.stale': 'Jemand anderes hat die Optionen geändert. „Erneut versuchen“ lädt diese und verwirft Ihre Änderungen.',
  'delay.broadLogPurgeDelayDays': 'Versandlogs', 'delay.broadLogPurgeDelayDays.help': 'Wer was erhalten hat und wer ausgeschlossen wurde.',
  'delay.trackingLogPurgeDelayDays': 'Trackinglogs', 'delay.trackingLogPurgeDelayDays.help': 'Öffnungen, Klicks und Webtracking.',
  'delay.trackingStatPurgeDelayDays': 'Konsolidiertes Tracking', 'delay.trackingStatPurgeDelayDays.help': 'Statistiken zu Öffnungen und Klicks.',
  'delay.recycledDeliveryPurgeDelayDays': 'Gelöschte Sendungen', 'delay.recycledDeliveryPurgeDelayDays.help': 'Von Benutzern gelöscht, aber noch nicht endgültig entfernt.',
  'delay.rejectsPurgeDelayDays': 'Importzurückweisungen', 'delay.rejectsPurgeDelayDays.help': 'Datensätze, die ein Import nicht übernehmen konnte.',
  'delay.visitorPurgeDelayDays': 'Besucherprofile', 'delay.visitorPurgeDelayDays.help': 'Anonyme Besucher von Webseiten.',
  'delay.propositionPurgeDelayDays': 'Angebotsvorschläge', 'delay.propositionPurgeDelayDays.help': 'Wem welche Angebote unterbreitet wurden.',
  'delay.eventPurgeDelayDays': 'Message-Center-Ereignisse', 'delay.eventPurgeDelayDays.help': 'Ereignisse, wie sie eingegangen sind.',
  'delay.eventHistoPurgeDelayDays': 'Archivierte Ereignisse', 'delay.eventHistoPurgeDelayDays.help': 'Das Archiv der Message-Center-Ereignisse mit seinen Logs.',
  'delay.auditTrailPurgeDelayDays': 'Audit-Protokoll', 'delay.auditTrailPurgeDelayDays.help': 'Wer was in Adobe Campaign geändert hat.',
  'delay.appSubscriptionRcpPurgeDelayDays': 'Mobile-App-Abonnements', 'delay.appSubscriptionRcpPurgeDelayDays.help': 'Deaktivierte Abonnements mobiler Apps.',

  'schedule.title': 'Zeitplan', 'schedule.intro': 'Wann die gesamte Bereinigung automatisch läuft.', 'schedule.unkept': 'Kein Replikat startet geplante Ausführungen. Einschalten mit', 'schedule.enabled': 'Automatisch ausführen', 'schedule.once': 'Einmalig am', 'schedule.cron': 'Zeiten',
  'schedule.cron.help': 'Cron-Ausdrücke, einer pro Zeile: Minute, Stunde, Tag, Monat, Wochentag.', 'schedule.zone': 'Zeitzone', 'schedule.zone.help': 'Ein IANA-Name, etwa Europe/Berlin.', 'schedule.hours': 'Höchstdauer in Stunden',
  'schedule.hours.help': 'Danach endet eine Ausführung, und die nächste macht weiter. Leer: unbegrenzt.', 'schedule.continue': 'Nach einer fehlgeschlagenen Aufgabe mit den anderen fortfahren', 'schedule.next': 'Nächste Ausführungen', 'schedule.none': 'Keine geplant.', 'schedule.week': 'Die nächsten sieben Tage in {zone}',

  'guards.title': 'Schutzregeln', 'guards.intro': 'Schutzregeln verweigern eine Aufgabe, die mehr als üblich löschen würde, bis jemand die Zahl eingibt.', 'guards.tripped': 'Ausgelöst', 'guards.quiet': 'Keine Schutzregel hat ausgelöst.', 'guards.guard': 'Schutzregel',
  'guards.number': 'Betroffen', 'guards.most': 'Höchstens', 'guards.when': 'Seit', 'guards.pass': 'Um eine Aufgabe zuzulassen, starten Sie eine Vorschau und geben dort die Zahlen ein:', 'guards.limits': 'Grenzwerte', 'guards.default': 'Standard: {n}.',
  'guard.minProcessInstances': 'Mindestanzahl Prozessinstanzen', 'guard.minProcessInstances.help': 'Bei weniger Prozessinstanzen von AEM Forms lösen share und cutoff nicht aus.', 'guard.minRows': 'Mindestanzahl Zeilen', 'guard.minRows.help': 'Bei weniger Zeilen lösen share, growth und cutoff nicht aus.', 'guard.maxSharePercent': 'Anteil an einer Tabelle in Prozent', 'guard.maxSharePercent.help': 'Ein größerer Anteil löst share aus.',
  'guard.maxGrowth': 'Wachstum', 'guard.maxGrowth.help': 'Mehr als dieses Vielfache der größten Ausführung der letzten 400 Tage löst growth aus. 0: aus.', 'guard.maxTables': 'Arbeitstabellen', 'guard.maxTables.help': 'Entfernt eine Aufgabe mehr Tabellen, löst tables aus.',
  'guard.maxDropPercent': 'Anteil an der Datenbank in Prozent', 'guard.maxDropPercent.help': 'Mehr Speicherplatz in entfernten Tabellen löst bytes aus.', 'guard.maxClockDifference': 'Uhrendifferenz in Minuten', 'guard.maxClockDifference.help': 'Weichen die Uhren stärker ab, startet keine Ausführung.',
  'guard.maxIdle': 'Stillstand in Tagen', 'guard.maxIdle.help': 'Ist das neueste Log älter, wie in einer wiederhergestellten Kopie, startet keine Ausführung.', 'guard.cutoff': 'Sprünge der Stichtage überwachen',

  'holds.title': 'Löschsperren', 'holds.intro': 'Gesperrte Daten bleiben erhalten, unabhängig von den Regeln.', 'holds.what': 'Was', 'holds.reason': 'Grund', 'holds.by': 'Von', 'holds.until': 'Bis', 'holds.until.help': 'Leer: bis zur Aufhebung.', 'holds.forever': 'zur Aufhebung',
  'holds.release': 'Aufheben', 'holds.ask': 'Die nächste Ausführung kann die Daten löschen.', 'holds.none': 'Nichts ist gesperrt.', 'holds.ended': 'Auch beendete Löschsperren anzeigen', 'holds.uncovered': 'Nicht gesperrt: {tables}', 'holds.new': 'Neue Löschsperre', 'holds.hold': 'Sperren', 'holds.ids': 'IDs', 'holds.table': 'Name der Tabelle',
  'hold.deliveries': 'Sendungen', 'hold.deliveries.help': 'Mit ihren Logs, Statistiken und Mirrorseiten.', 'hold.lists': 'Listen', 'hold.lists.help': 'Mit ihren Mitgliedern und Tabellen.', 'hold.workflows': 'Workflows', 'hold.workflows.help': 'Mit ihrem Verlauf und ihren Arbeitstabellen.',
  'hold.recipients': 'Empfänger', 'hold.recipients.help': 'Mit allem, was mit ihnen verknüpft ist.', 'hold.table': 'Tabelle', 'hold.table.help': 'Alle ihre Zeilen und sie selbst.', 'hold.everything': 'Alles', 'hold.everything.help': 'Keine Ausführung löscht etwas.',

  'explain.title': 'Erklären', 'explain.intro': 'Warum eine Zeile gelöscht wird oder bleibt. Der Schlüssel ist eine Zahl oder SPALTE=WERT.', 'explain.key': 'Schlüssel', 'explain.go': 'Erklären', 'explain.since': 'ab', 'explain.condition': 'Bedingung', 'explain.truth': 'Ergebnis', 'explain.values': 'Werte',
  'explain.gone': 'Diese Zeile gibt es nicht.', 'explain.runs': 'Ausführungen, die Zeilen dieser Tabelle gelöscht haben', 'explain.noruns': 'Keine Ausführung hat Zeilen dieser Tabelle gelöscht.',

  'userdata.title': 'Benutzerdaten', 'userdata.intro': 'Findet, was AEM-Forms-Workflows über eine Person enthalten, und löscht es.', 'userdata.id': 'Benutzer-ID', 'userdata.id.help': 'Die ID, mit der sich die Person anmeldet.', 'userdata.application': 'Anwendung', 'userdata.workflow': 'Workflow',
  'userdata.variable': 'Variable', 'userdata.variables': 'Auch Workflow-Variablen können die Benutzer-ID enthalten.', 'userdata.more': 'Variable hinzufügen', 'userdata.less': 'Entfernen', 'userdata.find': 'Suchen', 'userdata.searching': 'Suche läuft …', 'userdata.receipts': 'Löschprotokolle',
  'userdata.noreceipts': 'Bisher wurde nichts gelöscht.', 'userdata.erasure': 'Löschung', 'userdata.sweep': 'Bereinigung von Dokumenten', 'userdata.found': 'Gefunden: {n}', 'userdata.instances': 'Prozessinstanzen', 'userdata.instance': 'Prozessinstanz', 'userdata.nothing': 'Nichts gefunden.',
  'userdata.why': 'Warum', 'userdata.part': 'Teil eines Wertes', 'userdata.orphans': '{n} Aufgaben ohne Prozessinstanz:', 'userdata.blind': 'Was nicht durchsucht werden kann', 'userdata.preview': 'Löschvorschau', 'userdata.erase': 'Löschen', 'userdata.ask': '{n} Prozessinstanzen und Aufgaben mit {rows} Zeilen werden endgültig gelöscht. Laufende Instanzen werden beendet.',
  'userdata.gone': 'Gelöscht: {rows} Zeilen.', 'userdata.receipt': 'Löschprotokoll', 'userdata.hash': 'Hash der Benutzer-ID', 'userdata.files': 'Dateien', 'reason.INITIATOR': 'hat sie gestartet', 'reason.PARTICIPANT': 'war beteiligt', 'reason.VARIABLE': 'Variable',
  'userdata.application.help': 'Zum Beispiel Loans.', 'userdata.workflow.help': 'Mit Ordnern: Ordner/Workflow.', 'userdata.variable.help': 'Leer: alle.', 'userdata.several': 'Mehrere Benutzer aus verschiedenen Domänen haben diese ID. Wer ist gemeint?', 'userdata.tasks': 'Aufgaben', 'userdata.erased': 'Gelöschte Zeilen', 'userdata.verification': 'Überprüfung', 'userdata.unverified': 'Noch nicht überprüft.', 'userdata.left': 'Noch gefunden:', 'userdata.verify': 'Überprüfen', 'userdata.verify.help': 'Das Löschprotokoll enthält sie nicht.',

  'purges.title': 'AEM Forms: Prozessinstanzen', 'purges.intro': 'Abgeschlossene und beendete Prozessinstanzen werden nach Ablauf der Frist mit ihren Aufgaben und Dokumenten bereinigt. Sehen Sie sich die Vorschau an, bevor Sie eine Regel einschalten.', 'purges.none': 'Es gibt keine Regel.', 'purges.name': 'Name der Regel', 'purges.name.help': 'a–z, 0–9 und -', 'purges.older': 'Älter als', 'purges.days': 'Älter als, in Tagen', 'purges.column': 'Datumsspalte', 'purges.column.help': 'Eine Spalte von tb_process_instance.', 'purges.on': 'Ein', 'purges.remove': 'Regel {name} entfernen?', 'purges.preview': 'Regel-Vorschau', 'purges.create': 'Regel anlegen',

  'audit.title': 'Audit', 'audit.intro': 'Wer etwas geändert oder gelöscht hat.', 'audit.who': 'Wer', 'audit.what': 'Was', 'audit.result': 'Ergebnis', 'audit.details': 'Details', 'audit.empty': 'Noch keine Einträge.',

  'about.title': 'Info', 'about.you': 'Sie', 'about.name': 'Name', 'about.anonymous': 'ohne Namen', 'about.role': 'Rolle', 'about.by': 'Anmeldung über', 'about.address': 'Adresse', 'about.server': 'Server', 'about.version': 'Version', 'about.instance': 'Instanz', 'about.noinstance': 'ohne Namen',
  'about.database': 'Datenbank', 'about.userdata': 'Benutzerdaten', 'about.on': 'ein', 'about.off': 'Aus. Einschalten mit', 'about.history': 'Aufbewahrung der Ausführungen', 'about.plans': 'Gültigkeit einer Vorschau', 'about.api': 'API', 'about.replicas': 'Replikate', 'about.this': 'dieses', 'about.keeps': 'startet Ausführungen',
  'about.started': 'Gestartet', 'about.seen': 'Zuletzt gesehen', 'about.leftovers': 'Zurückgeblieben auf Midsourcing-Servern', 'about.leftovers.help': 'Sendungen, die hier gelöscht sind, dort aber nicht gelöscht werden konnten.', 'about.noleftovers': 'Nichts ist zurückgeblieben.', 'about.account': 'Konto', 'about.delivery': 'Sendung', 'about.remote': 'ID auf dem Server',
}
