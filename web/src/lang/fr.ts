import type { Words } from '../i18n'

export const words: Words = {
  'skip': 'Aller au contenu', 'navigation': 'Pages', 'language': 'Langue', 'loading': 'Chargement…', 'empty': 'Aucun élément.', 'nowhere': 'Cette page n’existe pas.',
  'rows': 'lignes', 'rows.title': 'Lignes', 'table': 'Table', 'duration': 'Durée', 'days': 'jours', 'confirm.type': 'Saisissez {what} pour confirmer',
  'action.retry': 'Réessayer', 'action.back': 'Retour', 'action.more': 'Afficher plus', 'action.save': 'Enregistrer', 'action.undo': 'Annuler les modifications',
  'problem.network': 'Le serveur ne répond pas.', 'problem.page': 'Une erreur s’est produite sur cette page : {what}',
  'state.QUEUED': 'en file d’attente', 'state.PENDING': 'en attente', 'state.RUNNING': 'en cours', 'state.SUCCEEDED': 'réussi', 'state.FAILED': 'échoué', 'state.CANCELLED': 'annulé',
  'state.SKIPPED': 'ignoré', 'state.NOT_RUN': 'non exécuté', 'state.GOES': 'sera supprimée', 'state.LATER': 'sera supprimée plus tard', 'state.STAYS': 'conservée', 'state.UNKNOWN': 'inconnu',
  'state.TRUE': 'vrai', 'state.FALSE': 'faux', 'state.TRIPPED': 'déclenché', 'state.HELD': 'bloqué', 'state.RELEASED': 'débloqué', 'state.EXPIRED': 'expiré',
  'role.VIEWER': 'Lecteur', 'role.OPERATOR': 'Opérateur', 'role.ADMIN': 'Administrateur',

  'signin.title': 'Connexion', 'signin.intro': 'Ce serveur demande une identification.', 'signin.oidc': 'Se connecter avec {issuer}', 'signin.token': 'Jeton', 'signin.token.help': 'Un jeton du fichier du serveur, ou un JWT.',
  'signin.keep': 'Conserver jusqu’à la fermeture de l’onglet', 'signin.go': 'Se connecter', 'signin.certificate': 'Le serveur accepte les certificats clients. Installez le vôtre dans le navigateur.', 'signin.out': 'Se déconnecter',

  'overview.title': 'Vue d’ensemble', 'overview.intro': 'Nettoyage de la base de données Adobe Campaign {database}', 'overview.welcome': 'cleanupd supprime ce dont Adobe Campaign n’a plus besoin : logs anciens, diffusions supprimées, tables abandonnées. Rien n’est supprimé sans votre accord. Commencez par une prévisualisation.', 'overview.what': 'Prévisualiser un nettoyage', 'overview.attention': 'À vérifier', 'overview.well': 'Tout va bien.',
  'overview.failed': 'La dernière exécution a échoué : {tasks}.', 'overview.see': 'Voir l’exécution', 'overview.tripped': 'Des garde-fous se sont déclenchés, leurs tâches attendent : {guards}.', 'overview.unscheduled': 'Aucune exécution n’est planifiée.',
  'overview.unkept': 'Aucun réplica ne lance les exécutions planifiées.', 'overview.invalid': 'La valeur enregistrée de {option} est inutilisable.', 'overview.stays': '{rows} lignes à supprimer sont encore là.',
  'overview.remote': 'Des diffusions sont restées sur des serveurs de mid-sourcing.', 'overview.active': 'En cours', 'overview.last': 'Dernière exécution', 'overview.never': 'Aucune jusqu’à présent.', 'overview.deleted': 'Lignes nettoyées',
  'overview.inlast': 'lors de la dernière exécution', 'overview.next': 'Prochaine exécution', 'overview.none': 'aucune', 'overview.nights': 'Les 30 derniers jours', 'overview.nonights': 'Aucune exécution au cours des 30 derniers jours.',
  'overview.others': 'autres tâches', 'overview.bar': '{rows} lignes en {period}',

  'history.title': 'Historique', 'history.intro': 'Ce qui a été exécuté, quand, et avec quel résultat.', 'history.state': 'Statut', 'history.kind': 'Type', 'history.any': 'tous', 'history.real': 'nettoyage', 'history.dry': 'simulation',
  'history.plan': 'nettoyage selon un plan', 'history.task': 'Tâche', 'history.from': 'À partir du', 'history.empty': 'Aucune exécution correspondante.', 'history.when': 'Date', 'history.by': 'Demandé par',

  'run.title': 'Exécution', 'run.dry': 'Simulation', 'run.cancel': 'Annuler l’exécution', 'run.cancel.help': 'Elle se termine après les lots en cours. Ce qui est déjà supprimé le reste.', 'run.trouble': 'La connexion est interrompue, nouvelle tentative en cours.',
  'run.since': 'depuis', 'run.ended': 'terminé le', 'run.ofplan': 'selon ce plan', 'run.rate': 'Lignes par seconde', 'run.pipeline': 'Tâches', 'run.task': 'Tâche', 'run.waits': 'attend : {why}', 'run.progress': 'Progression',
  'run.left': 'encore {period} environ', 'run.deleted': 'Supprimées', 'run.updated': 'Modifiées', 'run.dropped': 'Tables supprimées', 'run.batches': 'Lots', 'run.all': 'Total', 'run.space': 'Espace', 'run.before': 'Avant',
  'run.after': 'Après', 'run.reusable': 'Réutilisable', 'run.log': 'Journal', 'run.events': '{n} événements', 'run.earlier': 'Afficher les lignes précédentes', 'run.later': 'Afficher les lignes suivantes', 'run.nolog': 'Rien à signaler.',

  'preview.title': 'Prévisualisation', 'preview.intro': 'Compte exactement ce qu’un nettoyage supprimerait maintenant, sans rien modifier. Vous pouvez ensuite exécuter exactement cela.', 'preview.start': 'Lancer la prévisualisation', 'preview.blind': 'Exécuter sans prévisualiser…',
  'preview.unseen': 'Supprimer sans vérifier d’abord ?', 'preview.yes': 'Exécuter maintenant', 'preview.tasks': 'Tâches', 'preview.all': 'Tout sélectionner', 'preview.none': 'Tout désélectionner', 'preview.what': 'Ce qu’elle supprime',
  'preview.recent': 'Prévisualisations récentes', 'preview.norecent': 'Aucune prévisualisation.', 'preview.result': 'Ce qui serait supprimé', 'preview.sum': '{deleted} lignes seraient supprimées, {updated} modifiées, {tables} tables supprimées : {size}.',
  'preview.guarded': 'Une partie est inhabituelle. Des garde-fous la refusent tant que personne n’a saisi les nombres.', 'preview.admin': 'Seul un administrateur peut le faire.', 'preview.nothing': 'Rien ne serait supprimé.', 'preview.names': 'Noms',
  'preview.trips': 'garde-fou {guard} : {number}, maximum {most}', 'preview.action': 'Action', 'preview.delete': 'supprimer', 'preview.update': 'modifier', 'preview.drop': 'supprimer la table', 'preview.amount': 'Nombre',
  'preview.tables': '{n} tables', 'preview.now': 'Actuellement', 'preview.share': 'Part de la table', 'preview.age': 'Plus ancienne, plus récente', 'preview.sample': 'Échantillon', 'preview.size': 'Taille',
  'preview.run': 'Exécuter exactement cela', 'preview.ask': '{rows} lignes seront supprimées ou modifiées, et {tables} tables supprimées. C’est irréversible.', 'preview.accept': 'Garde-fou {guard} : saisissez {number}', 'preview.notstarted': 'L’exécution n’a pas démarré.',

  'retention.title': 'Conservation', 'retention.intro': 'Durée de conservation des données avant leur nettoyage.', 'retention.default': 'Par défaut : {days} jours.', 'retention.reset': 'Rétablir la valeur par défaut', 'retention.storage': 'Optimisation du stockage',
  'retention.storage.help': 'Ce qui est fait des tables après le nettoyage.', 'storage.VACUUM_ANALYZE': 'Vacuum et Analyze', 'storage.ANALYZE': 'Analyze', 'storage.NONE': 'Rien', 'retention.last': 'Dernier nettoyage :',
  'retention.changed': 'Modifications non enregistrées : {n}', 'retention.effect': 'Afficher l’effet', 'retention.effects': 'Effet des modifications', 'retention.whole': 'Prévisualisation complète', 'retention.same': 'Aucun effet : les mêmes lignes seraient supprimées.',
  'retention.outdated': 'Vous avez modifié quelque chose depuis.', 'retention.then': 'Ensuite', 'retention.difference': 'Différence', 'retention.stale': 'Quelqu’un d’autre a modifié les options. Réessayer charge ses modifications et abandonne les vôtres.',
  'delay.broadLogPurgeDelayDays': 'Logs de diffusion', 'delay.broadLogPurgeDelayDays.help': 'Qui a reçu quoi, et qui a été exclu.',
  'delay.trackingLogPurgeDelayDays': 'Logs de tracking', 'delay.trackingLogPurgeDelayDays.help': 'Ouvertures, clics et tracking web.',
  'delay.trackingStatPurgeDelayDays': 'Tracking consolidé', 'delay.trackingStatPurgeDelayDays.help': 'Statistiques d’ouvertures et de clics.',
  'delay.recycledDeliveryPurgeDelayDays': 'Diffusions supprimées', 'delay.recycledDeliveryPurgeDelayDays.help': 'Supprimées par des utilisateurs, avant leur suppression définitive.',
  'delay.rejectsPurgeDelayDays': 'Rejets d’import', 'delay.rejectsPurgeDelayDays.help': 'Enregistrements qu’un import n’a pas pu reprendre.',
  'delay.visitorPurgeDelayDays': 'Profils des visiteurs', 'delay.visitorPurgeDelayDays.help': 'Visiteurs anonymes de pages web.',
  'delay.propositionPurgeDelayDays': 'Propositions d’offres', 'delay.propositionPurgeDelayDays.help': 'Quelles offres ont été proposées à qui.',
  'delay.eventPurgeDelayDays': 'Événements Message Center', 'delay.eventPurgeDelayDays.help': 'Événements tels que reçus.',
  'delay.eventHistoPurgeDelayDays': 'Événements historisés', 'delay.eventHistoPurgeDelayDays.help': 'Les événements Message Center historisés, avec leurs logs.',
  'delay.auditTrailPurgeDelayDays': 'Journal d’audit', 'delay.auditTrailPurgeDelayDays.help': 'Qui a modifié quoi dans Adobe Campaign.',
  'delay.appSubscriptionRcpPurgeDelayDays': 'Abonnements mobiles', 'delay.appSubscriptionRcpPurgeDelayDays.help': 'Abonnements désactivés des applications mobiles.',

  'schedule.title': 'Planification', 'schedule.intro': 'Quand le nettoyage complet s’exécute automatiquement.', 'schedule.unkept': 'Aucun réplica ne lance les exécutions planifiées. Pour cela :', 'schedule.enabled': 'Exécuter automatiquement', 'schedule.once': 'Une seule fois, le', 'schedule.cron': 'Horaires',
  'schedule.cron.help': 'Expressions cron, une par ligne : minute, heure, jour du mois, mois, jour de la semaine.', 'schedule.zone': 'Fuseau horaire', 'schedule.zone.help': 'Un nom IANA, comme Europe/Paris.', 'schedule.hours': 'Durée maximale en heures',
  'schedule.hours.help': 'Passé ce délai, l’exécution s’arrête et la suivante continue. Vide : sans limite.', 'schedule.continue': 'Continuer avec les autres tâches si l’une échoue', 'schedule.next': 'Prochaines exécutions', 'schedule.none': 'Aucune n’est prévue.', 'schedule.week': 'Les sept prochains jours, {zone}',

  'guards.title': 'Garde-fous', 'guards.intro': 'Les garde-fous refusent une tâche qui supprimerait plus que d’habitude, tant que personne n’a saisi le nombre.', 'guards.tripped': 'Déclenchés', 'guards.quiet': 'Aucun garde-fou ne s’est déclenché.', 'guards.guard': 'Garde-fou',
  'guards.number': 'Nombre', 'guards.most': 'Maximum', 'guards.when': 'Depuis', 'guards.pass': 'Pour autoriser une tâche, prévisualisez-la et saisissez-y les nombres :', 'guards.limits': 'Limites', 'guards.default': 'Par défaut : {n}.',
  'guard.minProcessInstances': 'Nombre minimal d’instances de processus', 'guard.minProcessInstances.help': 'En dessous, ni share ni cutoff ne se déclenchent pour AEM Forms.', 'guard.minRows': 'Nombre minimal de lignes', 'guard.minRows.help': 'En dessous, ni share, ni growth, ni cutoff ne se déclenchent.', 'guard.maxSharePercent': 'Part d’une table, en pour cent', 'guard.maxSharePercent.help': 'Au-delà, share se déclenche.',
  'guard.maxGrowth': 'Croissance', 'guard.maxGrowth.help': 'Plus que ce multiple de la plus grande exécution des 400 derniers jours déclenche growth. 0 : désactivé.', 'guard.maxTables': 'Tables de travail', 'guard.maxTables.help': 'Si une tâche en supprime davantage, tables se déclenche.',
  'guard.maxDropPercent': 'Part de la base de données, en pour cent', 'guard.maxDropPercent.help': 'Plus d’espace dans les tables supprimées déclenche bytes.', 'guard.maxClockDifference': 'Écart des horloges, en minutes', 'guard.maxClockDifference.help': 'Si les horloges diffèrent davantage, aucune exécution ne démarre.',
  'guard.maxIdle': 'Inactivité, en jours', 'guard.maxIdle.help': 'Si le log le plus récent est plus ancien, comme dans une copie restaurée, aucune exécution ne démarre.', 'guard.cutoff': 'Surveiller les sauts de date limite',

  'holds.title': 'Blocages', 'holds.intro': 'Ce qui est bloqué est conservé, quelles que soient les règles.', 'holds.what': 'Quoi', 'holds.reason': 'Motif', 'holds.by': 'Par', 'holds.until': 'Jusqu’au', 'holds.until.help': 'Vide : jusqu’au déblocage.', 'holds.forever': 'déblocage',
  'holds.release': 'Débloquer', 'holds.ask': 'La prochaine exécution pourra le supprimer.', 'holds.none': 'Rien n’est bloqué.', 'holds.ended': 'Afficher aussi les blocages terminés', 'holds.uncovered': 'Non bloqué : {tables}', 'holds.new': 'Nouveau blocage', 'holds.hold': 'Bloquer', 'holds.ids': 'ID', 'holds.table': 'Nom de la table',
  'hold.deliveries': 'Diffusions', 'hold.deliveries.help': 'Avec leurs logs, statistiques et pages miroir.', 'hold.lists': 'Listes', 'hold.lists.help': 'Avec leurs membres et leurs tables.', 'hold.workflows': 'Workflows', 'hold.workflows.help': 'Avec leur historique et leurs tables de travail.',
  'hold.recipients': 'Destinataires', 'hold.recipients.help': 'Avec tout ce qui leur est lié.', 'hold.table': 'Table', 'hold.table.help': 'Toutes ses lignes, et la table elle-même.', 'hold.everything': 'Tout', 'hold.everything.help': 'Aucune exécution ne supprime quoi que ce soit.',

  'explain.title': 'Expliquer', 'explain.intro': 'Pourquoi une ligne est supprimée ou conservée. La clé est un nombre, ou COLONNE=VALEUR.', 'explain.key': 'Clé', 'explain.go': 'Expliquer', 'explain.since': 'à partir du', 'explain.condition': 'Condition', 'explain.truth': 'Résultat', 'explain.values': 'Valeurs',
  'explain.gone': 'Cette ligne n’existe pas.', 'explain.runs': 'Exécutions qui ont supprimé des lignes de cette table', 'explain.noruns': 'Aucune exécution n’a supprimé de lignes de cette table.',

  'userdata.title': 'Données utilisateur', 'userdata.intro': 'Trouve ce que les workflows AEM Forms contiennent sur une personne, et l’efface.', 'userdata.id': 'ID utilisateur', 'userdata.id.help': 'Celui avec lequel la personne se connecte.', 'userdata.application': 'Application', 'userdata.workflow': 'Workflow',
  'userdata.variable': 'Variable', 'userdata.variables': 'Des variables de workflow peuvent aussi contenir l’ID utilisateur.', 'userdata.more': 'Ajouter une variable', 'userdata.less': 'Retirer', 'userdata.find': 'Rechercher', 'userdata.searching': 'Recherche en cours…', 'userdata.receipts': 'Preuves d’effacement',
  'userdata.noreceipts': 'Rien n’a été effacé.', 'userdata.erasure': 'effacement', 'userdata.sweep': 'nettoyage de documents', 'userdata.found': 'Trouvés : {n}', 'userdata.instances': 'Instances de processus', 'userdata.instance': 'Instance de processus', 'userdata.nothing': 'Rien trouvé.',
  'userdata.why': 'Pourquoi', 'userdata.part': 'partie d’une valeur', 'userdata.orphans': '{n} tâches sans instance de processus :', 'userdata.blind': 'Ce qui ne peut pas être recherché', 'userdata.preview': 'Prévisualiser l’effacement', 'userdata.erase': 'Effacer', 'userdata.ask': '{n} instances de processus et tâches, soit {rows} lignes, seront effacées définitivement. Les instances en cours seront arrêtées.',
  'userdata.gone': 'Effacées : {rows} lignes.', 'userdata.receipt': 'Preuve d’effacement', 'userdata.hash': 'Hachage de l’ID utilisateur', 'userdata.files': 'Fichiers', 'reason.INITIATOR': 'l’a démarrée', 'reason.PARTICIPANT': 'y a participé', 'reason.VARIABLE': 'variable',
  'userdata.application.help': 'Par exemple Loans.', 'userdata.workflow.help': 'Avec ses dossiers : dossier/workflow.', 'userdata.variable.help': 'Vide : toutes.', 'userdata.several': 'Plusieurs utilisateurs, de domaines différents, ont cet ID. Lequel est concerné ?', 'userdata.tasks': 'Tâches', 'userdata.erased': 'Lignes effacées', 'userdata.verification': 'Vérification', 'userdata.unverified': 'Pas encore vérifié.', 'userdata.left': 'Encore trouvés :', 'userdata.verify': 'Vérifier', 'userdata.verify.help': 'La preuve ne le contient pas.',

  'purges.title': 'AEM Forms : instances de processus', 'purges.intro': 'Les instances de processus terminées ou arrêtées sont purgées passé le délai, avec leurs tâches et leurs documents. Prévisualisez une règle avant de l’activer.', 'purges.none': 'Il n’y a aucune règle.', 'purges.name': 'Nom de la règle', 'purges.name.help': 'a–z, 0–9 et -', 'purges.older': 'Antérieures à', 'purges.days': 'Antérieures à, en jours', 'purges.column': 'Colonne de date', 'purges.column.help': 'Une colonne de tb_process_instance.', 'purges.on': 'Active', 'purges.remove': 'Supprimer la règle {name} ?', 'purges.preview': 'Prévisualiser la règle', 'purges.create': 'Créer la règle',

  'audit.title': 'Audit', 'audit.intro': 'Qui a modifié ou effacé quelque chose.', 'audit.who': 'Qui', 'audit.what': 'Quoi', 'audit.result': 'Résultat', 'audit.details': 'Détails', 'audit.empty': 'Aucune entrée.',

  'about.title': 'À propos', 'about.you': 'Vous', 'about.name': 'Nom', 'about.anonymous': 'sans nom', 'about.role': 'Rôle', 'about.by': 'Identifié par', 'about.address': 'Adresse', 'about.server': 'Serveur', 'about.version': 'Version', 'about.instance': 'Instance', 'about.noinstance': 'sans nom',
  'about.database': 'Base de données', 'about.userdata': 'Données utilisateur', 'about.on': 'activées', 'about.off': 'Désactivées. Pour les activer :', 'about.history': 'Conservation des exécutions', 'about.plans': 'Validité d’une prévisualisation', 'about.api': 'API', 'about.replicas': 'Réplicas', 'about.this': 'celui-ci', 'about.keeps': 'lance les exécutions',
  'about.started': 'Démarré', 'about.seen': 'Vu pour la dernière fois', 'about.leftovers': 'Restées sur des serveurs de mid-sourcing', 'about.leftovers.help': 'Diffusions supprimées ici, mais qui n’ont pas pu l’être là-bas.', 'about.noleftovers': 'Aucune.', 'about.account': 'Compte', 'about.delivery': 'Diffusion', 'about.remote': 'ID distant',
}
