"""Signs of a jailbreak or of injected instructions in a text, in six languages.

Patterns find what is said plainly: instructions that are dropped, a model without limits, a special
mode, a role to play, hidden instructions that are asked for, orders that a text gives to the model
that reads it. A story or a pretext they do not find. `benchmarks/jailbreaks.py` measures both.

A text is folded first: no accents, no invisible characters, letters that only look Latin as Latin
ones. Then words with digits for letters, and words spelt with gaps, are read as words too. Every
pattern takes time linear in the length of any text: each repetition is bounded.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

DROPS = "drops instructions"
NO_LIMITS = "a model without limits"
MODE = "a special mode"
ROLE = "a role to play"
REVEALS = "hidden instructions"
ORDERS = "orders to the model"
MARKS = "marks of a chat"
SIGNS = (DROPS, NO_LIMITS, MODE, ROLE, REVEALS, ORDERS, MARKS)


class _Words(NamedTuple):
    """The words of a language, folded; each is a part of a pattern."""

    drop: str
    """Verbs: to ignore, to forget, to bypass."""
    former: str
    """Words between the verb and what is dropped."""
    rules: str
    """What is dropped: instructions, rules, a prompt."""
    later: str
    """Words after it: previous, above, that you were given."""
    own: str
    """Words that make the rules those of a model: your, all, previous, safety."""
    everything: str
    """What stands alone: everything before, all prior."""
    role: str
    """Pretend you are, and its kin."""
    reveal: str
    """Verbs and questions: show, repeat, what is."""
    secret: str
    """System prompt, initial instructions."""
    orders: str
    """From now on you answer, your new task is."""
    free: str
    """A model without limits, and saying that there are none."""
    mode: str
    """Developer mode, and its kin."""
    denied: str
    """Words before a match that deny it: I cannot, do not."""


_EN = _Words(
    drop=(
        r"ignor(?:e|es|ed|ing)|disregard(?:s|ed|ing)?|forget(?:s|ting)?|overrid(?:e|es|den|ing)|"
        r"bypass(?:es|ed|ing)?|overrul(?:e|ed|ing)|neglect|circumvent|disobey|defy|abandon|"
        r"discard|suspend|set aside|cast aside|throw (?:out|away)|pay no attention to|stop "
        r"(?:following|obeying)|(?:do not|don't|no longer|never) (?:follow|obey|adhere to|"
        r"comply with|listen to)|break free (?:of|from)|deviate from|act (?:against|counter to)|"
        r"let go of"
    ),
    former=(
        r"all|any|every|each|the|my|your|its|our|these|those|this|that|of|and|or|and/or|"
        r"previous(?:ly)?|prior|above|earlier|preceding|former|existing|current|initial|"
        r"original|old|past|other|safety|security|system|given|provided|standard|usual|default|"
        r"ethical|moral|content|internal|hidden|developer|programmed|built in|predefined|preset|"
        r"operational|operating|core|normal|typical|established|conventional|about|now"
    ),
    rules=(
        r"instructions?|rules?|guidelines?|prompts?|directives?|restrictions?|polic(?:y|ies)|"
        r"orders|commands|constraints?|programming|protocols?|filters?|safeguards|guardrails|"
        r"limitations?|directions|tasks|assignments|restraints|boundaries|principles|training|"
        r"code of conduct|operating procedures|ethics|parameters"
    ),
    later=(
        r"(?:that |which )?(?:were |was |are |is )?(?:you (?:were|have been|got|received)|above|"
        r"before|given (?:to you|before|above|earlier|so far)|i (?:gave|told)|so far|until now|"
        r"up to now)"
    ),
    own=(
        r"all|any|every|your|its|previous(?:ly)?|prior|above|earlier|preceding|former|initial|"
        r"original|safety|security|system|ethical|moral|developer|programmed|built in|preset|"
        r"standard|internal|core|operational|operating|content"
    ),
    everything=(
        r"(?:(?:all|any|everything|anything|the|what(?:ever)?) (?:of )?(?:(?:the|that|was|is|"
        r"has|been|said|written|stated|you know|you(?:'ve| have| were)|i(?:'ve| have)|we(?:'ve| "
        r"have)|told|learned|talked|about|been|to you|mentioned) ){0,6}(?:above|prior|"
        r"previous(?:ly)?|before(?:hand)?|preceding|so far|until now|earlier)|(?:everything|"
        r"all) (?:i|you|we)(?:'ve| have| were| was)? (?:said|told|wrote|been told|talked|know))"
    ),
    role=(r"pretend(?:ing)? (?:that )?(?:you(?:'re| are| have| were| can| do)|to be|like you)"),
    reveal=(
        r"reveal|show|print|repeat|output|display|tell|give|write|share|list|leak|expose|dump|"
        r"disclose|unveil|uncover|what (?:is|are|was|were|does|did)|what's|recite|copy|"
        r"summari[sz]e|translate|spell ?check|say|describe|explain|divulge|provide|see|know|"
        r"access|return|echo"
    ),
    secret=(
        r"(?:system|initial|hidden|original|secret|internal|base|core|underlying|first|pre|"
        r"confidential|developer|foundational|training|starting|fundamental|root|primary|"
        r"essential) ?(?:training |system )?(?:prompts?|instructions?|messages?|directives?|"
        r"guidelines)|your (?:full |entire |whole |complete |exact |own )?(?:prompts?|"
        r"programming|instructions)|prompt texts?|(?:text|words|instructions|everything|prompt|"
        r"sentences|lines|content|message) (?:written |stated |that is )?(?:above|before this|"
        r"prior to this)"
    ),
    orders=(
        r"from now on,? (?:you (?:are|act|answer|respond|must|will (?:act|respond|answer|be|"
        r"ignore|follow|pretend|only))|only (?:answer|respond|reply)|answer|respond|act|speak)|"
        r"your new (?:task|role|instructions?|persona|name|objective|goal|rules?) (?:is|are|"
        r"will)|new (?:instructions?|rules?|task|system prompt) ?:|(?:here are|these are|follow|"
        r"obey) (?:your |the |my |these )?new (?:instructions|rules|orders)|(?:do not|don't|"
        r"never) (?:tell|mention (?:this |it |anything )?to|inform|alert|warn) the user|(?:only|"
        r"just|exclusively|solely) (?:follow|obey|listen to) (?:only )?my|(?:follow|obey) "
        r"(?:only )?my (?:commands|orders|instructions|will|demands|every)|say that you (?:have "
        r"been|were) (?:hacked|pwned)|i have been pwned|system override"
    ),
    free=(
        r"(?:unrestricted|unfiltered|uncensored|jailbroken|amoral|unshackled|unaligned|"
        r"unmoderated|unethical|rogue) (?:and \w{1,20} )?(?:a\.?i\.?|assistant|chat ?bot|bot|"
        r"model|language|version|chat|answers?|responses?|character|person|machine|being|"
        r"advis[oe]r)\b|(?:without|free (?:of|from)|no longer (?:bound|limited|restricted) "
        r"(?:by|to)|have no|has no|had no|not bound by|has broken free (?:of|from)|have broken "
        r"free (?:of|from)|are no|with no|were no|lift all|remove all|disable|disabled|turn "
        r"off) (?:(?:any|all|my|the|your|its|usual|typical|kind of|such|typical confines of|"
        r"other) ){0,3}(?:guardrails|safeguards|(?:ethical|moral|content|safety|openai|"
        r"censorship|programming|programmed|ai)(?: (?:or|and) (?:ethical|moral|legal|safety))? "
        r"(?:restrictions|limitations|limits|filters?|rules|guidelines|constraints|polic(?:y|"
        r"ies)|boundaries|considerations|protocols|concerns|principles|standards|codes?)|"
        r"censorship)\b|do anything now|can do anything now|jail ?break(?:ing|ed)? (?:prompt|"
        r"mode|yourself|chatgpt|the (?:ai|model|system))|evil (?:ai|chatbot|confidant|assistant|"
        r"twin)|stay a dan|(?:never|cannot|can't|must not|will not) (?:ever )?(?:refuse|decline|"
        r"reject) (?:any|to answer|to (?:respond|reply)|my (?:request|question|order|"
        r"command)s?)\b"
    ),
    mode=(
        r"(?:jailbreak|dan|unrestricted|unfiltered|uncensored|evil|antidan) mode|"
        r"(?:you are|you're|you will be|are|be|is|enter|entering|respond|answer) "
        r"(?:now |currently )?(?:in|into|with|as) (?:your |a |the |an )?(?:chatgpt (?:with )?)?"
        r"(?:developer|dev|debug|god|admin|administrator|sudo|opposite|root|maintenance|"
        r"superuser|override|diagnostic) mode|"
        r"(?:developer|debug|god|admin|sudo|opposite|root) mode (?:(?:is )?(?:now )?(?:enabled|"
        r"activated|active|unlocked|output|response)|is (?:now )?on)"
    ),
    denied=(
        r"not|never|cannot|can't|won't|don't|doesn't|didn't|refuse to|unable to|asked? me to|"
        r"request to|told to|tried to|attempt to|attempts? (?:at|to)|asking (?:me |us )?to|"
        r"should not|must not"
    ),
)

_DE = _Words(
    drop=(
        r"ignorier(?:e|en|t|st)?|vergiss|vergess(?:e|en|t)|missacht(?:e|en|et|est)|umgeh(?:e|en|"
        r"st|t)?|uebergeh(?:e|en)?|ubergeh(?:e|en)?|verwirf|verwerf(?:e|en|t)|ueberschreib(?:e|"
        r"en)|uberschreib(?:e|en)|widersetz(?:e|en)?|missachte|abweichend (?:zu|von)|trenne "
        r"dich von|loese dich von|lose dich von|halte dich nicht (?:mehr )?an|ausserhalb|"
        r"uebersteuere|ubersteuere"
    ),
    former=(
        r"all(?:e|er|en|es)?|die|der|den|das|dein(?:e|er|en|em)?|ihr(?:e|er|en|em)?|eure|"
        r"mein(?:e|en)?|s(?:ae|a)mtlich(?:e|en|er)|vorherig(?:e|en|er)|vorig(?:e|en|er)|"
        r"bisherig(?:e|en|er)|fr(?:ue|u)here?(?:n|r)?|obig(?:e|en|er)|oben|genannten|stehenden|"
        r"von|dir|davor|zuvor|voran(?:gegangen|gehend|gestellt)(?:e|en)|vor(?:aus)?gegangen(?:e|"
        r"en)|vorhergehend(?:e|en)|gegeben(?:e|en|er)|urspr(?:ue|u)nglich(?:e|en)|intern(?:e|"
        r"en)|ethisch(?:e|en)|(?:ue|u)blich(?:e|en)|normal(?:e|en)|standard|sich|und|jegliche|"
        r"jede|intrinsischen|eingebauten|programmierten|vorgegebenen|etablierten|festgelegten|"
        r"jetzt|nun|bitte|sie|grundlegenden|standardmassigen"
    ),
    rules=(
        r"(?:\w{1,20})?(?:anweisung(?:en)?|instruktion(?:en)?|regeln?|richtlinien?|vorgaben?|"
        r"befehle?n?|vorschrift(?:en)?|auftr(?:ae|a)ge|aufgaben|einschr(?:ae|a)nkung(?:en)?|"
        r"beschr(?:ae|a)nkung(?:en)?|prompts?|protokolle?|programmierung|eingaben|"
        r"anordnung(?:en)?|direktiven?|aufforderung(?:en)?|grenzen|prinzipien|angaben|"
        r"ausbildung|training|parameter|mechanismen|prozesse?)"
    ),
    later=r"(?:die )?(?:du |sie )?(?:oben|davor|zuvor|bisher|vorher|erhalten|bekommen)",
    own=(
        r"all(?:e|er|en)|dein(?:e|er|en)|s(?:ae|a)mtlich(?:e|en)|vorherig(?:e|en)|vorig(?:e|en)|"
        r"bisherig(?:e|en)|fr(?:ue|u)here?n?|obig(?:e|en)|oben|voran\w+|vor(?:aus)?gegangen\w*|"
        r"vorhergehend\w*|urspr(?:ue|u)nglich(?:e|en)|intern(?:e|en)|ethisch(?:e|en)|gegebenen|"
        r"jegliche|(?:ue|u)blichen?|programmierten|etablierten"
    ),
    everything=(
        r"(?:nun |jetzt |bitte |doch )?(?:alles|alle|s(?:ae|a)mtliches|das),? (?:(?:was|das|ich|"
        r"du|wir|dir|mir|bisher|jemals|obige|von|oben) ){0,4}(?:davor|zuvor|vorher(?:ige)?|"
        r"bisherige|obige|bisher|gesagt(?:e)?|oben|gelernt|weisst)"
    ),
    role=(
        r"tu so,? als|tue so,? als|tun sie so,? als|tut so,? als|gib dich als|geben sie sich "
        r"als|du bist (?:jetzt|nun|ab sofort)|spiele? die rolle|verhalte dich,? als|gebe vor,? "
        r"(?:ein|du|der|die)|verhalte dich wie|stell dir vor,? du (?:bist|warst|waerst)"
    ),
    reveal=(
        r"zeige?|zeigen|nenne?|nennen|verrate?|verraten|wiederhole?|wiederholen|gib|geben|"
        r"drucke?n?|schreibe?|was (?:ist|sind|war|waren|steht)|wie (?:lautet|lauten|lautete)|"
        r"kannst du|koennen sie|konnen sie|konntest du|koenntest du|enttarne|erklare|"
        r"welche[rsn]?|offenbare?|enthulle?|enthuelle|sage?|ausgeben|teile|lege|prasentiere|"
        r"liste|liefere"
    ),
    secret=(
        r"system ?(?:prompts?|nachrichten?|anweisung(?:en)?|aufforderung)|systemprompts?|prompt "
        r"?texte?|(?:initial|start|trainings|basis|kern|grund|eingangs|schlussel|haupt|"
        r"hauptausbildungs)(?:e|en|er)? ?(?:prompts?|anweisung(?:en)?|aufforderung(?:en)?|"
        r"befehle?|anleitung|instruktion(?:en)?)|(?:versteckte|geheime|verborgene|urspr(?:ue|"
        r"u)ngliche|interne|erste|anf(?:ae|a)ngliche|grundlegende|zentrale|wesentliche|"
        r"entscheidende|zugrunde ?liegende)[nrs]? (?:trainings ?)?(?:prompts?|anweisung(?:en)?|"
        r"instruktion(?:en)?|befehle?|aufforderung(?:en)?|anleitung|direktiven?|"
        r"eingabe(?:aufforderung)?|richtlinien?)|obige eingabeaufforderung|dein(?:e|en|em|er)? "
        r"(?:gesamten? |vollstandigen? |ganzen? )?prompts?(?:texte?)?"
    ),
    orders=(
        r"(?:ab (?:jetzt|sofort|nun)|von (?:jetzt|nun) an),? (?:bist du|antworte|antwortest|"
        r"wirst du|sprichst|agierst|handle|verhalte|folge|folgst)|dein(?:e)? neue[rsn]? "
        r"(?:aufgabe|rolle|anweisung(?:en)?|name|auftrag|ziel)|neue (?:anweisung(?:en)?|aufgabe|"
        r"instruktion(?:en)?) ?:|(?:folge|gehorche|befolge) (?:nur|ausschliesslich|allein|"
        r"stattdessen|einzig) (?:nur )?(?:noch )?(?:meinen|meine|mir)|(?:meinen|meine) "
        r"(?:\w{1,20} )?(?:anweisungen|befehlen?|forderungen) (?:zu )?(?:folg(?:e|st|en)|"
        r"gehorch\w*|befolg\w*)"
    ),
    free=(
        r"(?:ohne|frei von|keinerlei|keine) (?:(?:jegliche|irgendwelche|jede|alle) "
        r")?(?:(?:ethische|moralische|inhaltliche)[nr]? (?:\w{1,20}grenzen|einschr\w+|beschr\w+|"
        r"richtlinien|regeln|grenzen|bedenken)|zensur|inhaltsfilter|sicherheits(?:filter|regeln|"
        r"richtlinien))|(?:uneingeschr(?:ae|a)nkte|unzensierte|ungefilterte)[rsnm]? (?:ki|"
        r"assistent|chatbot|modell|antwort(?:en)?|sprachmodell|version)|(?:hebe|heben|"
        r"deaktiviere?|entferne?|schalte) (?:alle |deine |die )?(?:ethischen |moralischen "
        r")?(?:beschr\w+|einschr\w+|sicherheits\w+|filter|inhaltsfilter)"
    ),
    mode=(
        r"im (?:entwickler|debug|admin|administrator|root|uneingeschraenkten |uneingeschrankten )"
        r" ?modus|gott ?modus|jailbreak ?modus|dan ?modus"
    ),
    denied=(
        r"nicht|nie|niemals|keinesfalls|kann ich|darf ich|gebeten,?|aufgefordert,?|weigere "
        r"mich,?"
    ),
)

_FR = _Words(
    drop=(
        r"ignor(?:e|es|ez|er|ons|ant)|oubli(?:e|es|ez|er|ons)|neglig(?:e|ez|er)|contourn(?:e|ez|"
        r"er)|outrepass(?:e|ez|er)|desobei(?:s|ssez|r)|(?:fais|faites|faire) (?:abstraction|fi)|"
        r"ne (?:tiens|tenez|tenir) (?:plus |pas )?(?:aucun )?compte|ne (?:suis|suivez) (?:plus|"
        r"pas)|passe(?:z|r)? outre|suspend(?:s|ez)?|transgress(?:e|ez|er)|enfrein(?:s|dre|ez)|"
        r"abandonn(?:e|ez|er)|laisse(?:z|r)? (?:tomber|de cote)|meprise(?:z)?|devie(?:z)?|"
        r"ecart(?:e|ez)|viole(?:z|r)?|depass(?:e|ez|er)|brise(?:z)?|rejette|rejetez|"
        r"agis(?:sez)? (?:au dela|contre)|mets de cote|mettez de cote|opere en dehors|defais toi"
    ),
    former=(
        r"toutes?|tous|tout|les?|la|tes|ton|ta|vos|votre|mes|ces|cette|ce|des?|du|aux?|a|et|l'|"
        r"d'|precedente?s?|anterieure?s?|prealables|initiale?s?|habituelle?s?|donnees|"
        r"standards?|propres|temporairement|completement|internes|toute"
    ),
    rules=(
        r"(?:instructions?|consignes?|regles?|directives?|restrictions?|ordres|prompts?|"
        r"invites?|commandes|limites|limitations?|contraintes?|protocoles?|politiques|"
        r"parametres|procedures|programmation|normes|filtres|lignes directrices|formation|"
        r"entrainement|principes)"
    ),
    later=(
        r"(?:\w{1,14} )?(?:precedente?s?|anterieure?s?|ci dessus|prealables|initiales?|"
        r"d'origine|ethiques|(?:que )?(?:tu as|vous avez)|donnees|recues|habituelles?|de "
        r"securite|du systeme|operationnelles|etablies|standards?|par defaut|internes|morales|"
        r"de confidentialite|programmees|habituels?)"
    ),
    own=(
        r"toutes|tous|tes|ta|vos|votre|ton|precedente?s?|anterieure?s?|initiales?|habituelles?|"
        r"internes"
    ),
    everything=(
        r"(?:tout )?ce (?:qui|que) (?:(?:a|est|tu|vous|je|j'ai|t'ai|ete|as|avez|dit|ecrit|"
        r"precede|appris) ){0,4}(?:precede|avant|dessus|dit|precedemment|appris)|tout (?:le "
        r"reste|ci dessus|precedemment|avant|ce qui)"
    ),
    role=(
        r"(?:fais|faites|faisons) (?:semblant|comme si)|pretends? (?:que tu|etre)|pretendez "
        r"(?:que|etre)|(?:fais|faites) toi passer|comporte toi comme|tu es (?:maintenant|"
        r"desormais)"
    ),
    reveal=(
        r"montre[zr]?|revele[zr]?|affiche[zr]?|repete[zr]?|donne[zr]?|imprime[zr]?|ecri[sv]e?z?|"
        r"dis|dites|quel(?:le)?s? (?:est|sont|etait|etaient|a ete|fut)|partage[zr]?|"
        r"devoile[zr]?|divulgue[zr]?|communique[zr]?|expose[zr]?|presente[zr]?|liste[zr]?|"
        r"cite[zr]?|fournis|decris|demasque|explique"
    ),
    secret=(
        r"(?:prompts?|instructions?|consignes?|directives?|invites?|messages?|commandes?|"
        r"indications?) (?:du |de |d'|de ton |de ta |de l')?(?:systeme|initiale?s?|secrete?s?|"
        r"cachee?s?|originale?s?|origine|internes?|depart|base|principale?s?|centrale?s?|"
        r"formation|cles?|fondamentale?s?|essentielle?s?|sous jacente?s?|premiere?s?|"
        r"entrainement|masquee?s?|dissimulee?s?)|prompt systeme|(?:ton|votre) (?:propre )?prompt"
    ),
    orders=(
        r"(?:a partir de maintenant|desormais|dorenavant),? (?:tu (?:es|dois|vas|reponds|agis)|"
        r"vous (?:etes|devez|allez)|reponds|agis|parle|suis)|(?:ta|ton|tes|votre|vos) "
        r"nouve(?:lle?s?|aux?) (?:tache|role|instructions?|nom|mission|consignes?)|nouvelles? "
        r"(?:instructions?|consignes?|tache) ?:|(?:suis|obeis|concentre toi|agis|reponds) "
        r"(?:uniquement |seulement |exclusivement |selon |a |sur |que ){1,3}(?:mes|ma|moi)"
    ),
    free=(
        r"(?:sans|libre de|aucune?) (?:(?:aucune?|toutes?|les) )?(?:(?:restrictions?|limites?|"
        r"limitations?|contraintes?|regles?|filtres?|considerations?|normes|barrieres) "
        r"(?:ethiques?|morales?|de (?:securite|contenu|moderation))|censure)|(?:assistant|"
        r"chatbot|modele|reponses?|version) (?:\w{1,14} )?(?:sans (?:restrictions?|limites?|"
        r"filtres?|censure)|non (?:censuree?s?|filtree?s?|restreinte?s?))|(?:desactive[zr]?|"
        r"supprime[zr]?|leve[zr]?) (?:toutes? )?(?:les |tes |vos |tous )?(?:les |tes "
        r")?(?:filtres?|restrictions|protocoles|limites|limitations|garde fous)"
    ),
    mode=(
        r"en mode (?:developpeur|debogage|admin|administrateur|root)|"
        r"mode (?:dieu|jailbreak|dan|sans (?:restriction|filtre|limite)s?|non restreint)"
    ),
    denied=r"pas|jamais|ne peux|refuse d[e']|demande d[e']|ne saurais|n'",
)

_ES = _Words(
    drop=(
        r"ignor(?:a|e|en|ar|as|es|ad|ando)|olvid(?:a|e|en|ar|ate|ese|es|ad|a te|emos)|omit(?:e|"
        r"a|ir)|descart(?:a|e|ar)|desatiend(?:e|a)|desobedec(?:e|er)|desobedezc(?:a|as)|"
        r"elud(?:e|a|ir)|anul(?:a|e|ar)|salta(?:te)?|(?:haz|haga|hagan|hacer) caso omiso|no "
        r"(?:sigas?|hagas? caso|obedezcas?|tengas? en cuenta|respetes?)|pas(?:a|e) por alto|"
        r"suspende|rompe|evade|evadir|viola|sobrepasa|desactiva|desviate|abandona|deja (?:de "
        r"lado|de seguir)|prescinde|haz a un lado|sortea|infringe|renuncia|desafia|opera fuera|"
        r"deja a un lado"
    ),
    former=(
        r"todas?|todos?|las?|los?|el|tus?|sus?|mis?|estas?|esas?|estos|esos|de|del|al?|"
        r"cualquier|y|anterior(?:es)?|previ[ao]s?|precedentes?|inicial(?:es)?|dadas?|propias|"
        r"temporalmente|por|completo|internas|habituales|siguientes"
    ),
    rules=(
        r"instruccion(?:es)?|indicacion(?:es)?|reglas?|normas?|directrices|ordenes|"
        r"restricci(?:on|ones)|limitaciones|comandos|prompts?|pautas|politicas|directivas?|"
        r"protocolos?|mandatos|limites|programacion|filtros|procedimientos|lineamientos|"
        r"parametros|entrenamiento|formacion|principios"
    ),
    later=(
        r"(?:\w{1,14} )?(?:anterior(?:es)?|previ[ao]s?|precedentes?|inicial(?:es)?|de arriba|"
        r"dadas|que (?:te|se te|has|le|recibiste)|recibidas|de seguridad|eticas|del sistema|"
        r"establecid[ao]s|operativ[ao]s|estandar|internas|de privacidad|morales|habituales|"
        r"predeterminad[ao]s)"
    ),
    own=(
        r"todas|todos|tus?|sus|anterior(?:es)?|previ[ao]s|precedentes|iniciales|internas|"
        r"cualquier|habituales"
    ),
    everything=(
        r"(?:de )?todo (?:lo )?(?:(?:que|te|se|he|has|hemos|dije|digo|dicho|es|esta|de) "
        r"){0,4}(?:anterior|antes|previo|dije|arriba|dicho|aprendido|hablado)|lo (?:anterior|"
        r"dicho|de arriba|previo)"
    ),
    role=(
        r"(?:finge|finja|fingir|simula|simule) (?:que|ser)|haz(?:te)? (?:como si|de cuenta|"
        r"pasar)|haga de cuenta|actua como si|actue como si|comportate como|(?:ahora|a partir "
        r"de ahora) eres|hazte pasar"
    ),
    reveal=(
        r"muestra(?:me)?|muestre|mostrar|revela(?:me)?|revelar|revele|explica|repite|imprime|"
        r"escribe|dime|diga|dame|cual(?:es)? (?:es|son|fue|fueron|era|eran)|comparte|expon|"
        r"ensena(?:me)?|devela|desvela|describe|proporciona|que (?:dice|dicen)|desenmascara|"
        r"divulga|presenta|lista|copia|indica"
    ),
    secret=(
        r"(?:prompts?|instruccion(?:es)?|indicacion(?:es)?|mensajes?|directivas?|directriz|"
        r"directrices|orden(?:es)?|comandos?|guia|entrada|pauta) (?:de |del |de tu |en )?(?:tu "
        r")?(?:sistema|inicial(?:es)?|secret[ao]s?|ocult[ao]s?|original(?:es)?|intern[ao]s?|"
        r"base|principal(?:es)?|central(?:es)?|entrenamiento|fundamental(?:es)?|clave|formacion|"
        r"esencial(?:es)?|subyacentes?|raiz|programacion|primari[ao])|tu (?:propio )?prompt"
    ),
    orders=(
        r"(?:a partir de ahora|de ahora en adelante|desde ahora),? (?:eres|debes|vas a|"
        r"respondes?|responde|actua|actuaras|seras|solo|habla|sigue)|(?:tu|tus) nuev[ao]s? "
        r"(?:tarea|rol|instruccion(?:es)?|nombre|papel|mision|objetivo)|nuevas? "
        r"(?:instruccion(?:es)?|tarea|indicaciones) ?:|(?:sigue|obedece|responde|actua|"
        r"concentrate) (?:unicamente |solamente |solo |exclusivamente |segun |a |en "
        r"){1,3}(?:mis|mi|lo que yo)"
    ),
    free=(
        r"(?:sin|libre de|ninguna?) (?:(?:ninguna?|ningun|cualquier|las) )?(?:(?:restricci(?:on|"
        r"ones)|limites?|limitaciones|reglas|filtros?|barreras|consideraciones|normas) "
        r"(?:etic[ao]s?|moral(?:es)?|de (?:seguridad|contenido))|censura)|(?:asistente|chatbot|"
        r"modelo|respuestas?|version) (?:\w{1,14} )?(?:sin (?:restricciones|limites|filtros|"
        r"censura)|no (?:restringid[ao]|filtrad[ao]|censurad[ao]))|(?:desactiva|elimina|quita) "
        r"(?:todas? |todos )?(?:las |los |tus )?(?:filtros|restricciones|protocolos|"
        r"limitaciones|salvaguardas)"
    ),
    mode=(
        r"en modo (?:de )?(?:desarrollador|depuracion|admin|administrador|root)|"
        r"modo (?:dios|jailbreak|dan|sin (?:restricciones|filtros|limites)|irrestricto)"
    ),
    denied=r"no|nunca|jamas|no puedo|me niego a|pidio|pedido que|sin",
)

_PT = _Words(
    drop=(
        r"ignor(?:e|a|em|ar|es|ando)|esquec(?:a|e|am|er|as)|desconsider(?:e|a|em|ar)|"
        r"desprez(?:e|a|ar)|descart(?:e|a|ar)|desobedec(?:a|e|er)|contorn(?:e|a|ar)|burl(?:e|a|"
        r"ar)|anul(?:e|a|ar)|nao (?:siga|sigas|obedeca|leve em conta|considere)|suspend(?:a|e|"
        r"er)|passe por cima|deixe de (?:lado|seguir)|viol(?:e|a|ar)|quebr(?:e|a)|"
        r"desrespeit(?:e|a)|ultrapass(?:e|a)|abandon(?:e|a)|desvi(?:e|a)(?: se)?|desafi(?:e|a)|"
        r"renunci(?:e|a)"
    ),
    former=(
        r"todas?|todos?|as?|os?|suas?|seus?|tuas?|teus?|minhas|meus|essas?|estas?|esses|estes|"
        r"das?|dos?|de|e|qua(?:is|l)quer|anterior(?:es)?|previ[ao]s?|precedentes?|inicia(?:l|"
        r"is)|dadas?|proprias|temporariamente|internas|padrao|habituais|à"
    ),
    rules=(
        r"instruc(?:ao|oes)|regras?|diretrizes|ordens|comandos?|restric(?:ao|oes)|limitac(?:ao|"
        r"oes)|prompts?|orientacoes|politicas|diretivas?|protocolos?|normas|limites|programacao|"
        r"filtros|procedimentos|parametros|indicacoes|treinamento|formacao|principios"
    ),
    later=(
        r"(?:\w{1,14} )?(?:anterior(?:es)?|previ[ao]s?|precedentes?|iniciais|acima|dadas|que "
        r"(?:voce|te|lhe|foram|recebeu)|recebidas|de seguranca|eticas?|do sistema|"
        r"estabelecid[ao]s|operaciona(?:l|is)|padrao|internas|de privacidade|morais|habituais)"
    ),
    own=(
        r"todas|todos|suas?|seus|tuas?|teus|anterior(?:es)?|previ[ao]s|precedentes|iniciais|"
        r"internas|quaisquer|qualquer|habituais"
    ),
    everything=(
        r"(?:de )?tudo (?:o )?(?:(?:que|eu|te|voce|foi|ja|disse|esta|de) "
        r"){0,5}(?:anterior(?:mente)?|antes|acima|dito|disse|aprendeu|falamos)|o que (?:foi "
        r"dito|veio antes|esta acima)"
    ),
    role=(
        r"(?:finja|finge|fingir|simule) (?:que|ser)|(?:faca|faz) de conta|(?:aja|age|haja) como "
        r"se|comporte se como|voce (?:agora e|e agora)|agora voce e|passe se por"
    ),
    reveal=(
        r"mostre(?: me)?|mostra|mostrar|revele?|revela|revelar|explique|repita|imprima|escreva|"
        r"diga(?: me)?|de me|me (?:mostre|diga|de)|qua(?:l|is) (?:e|sao|foi|foram|era|eram)|"
        r"compartilhe|exponha|divulgue|descreva|apresente|liste|copie|forneca|desvende|exiba|"
        r"informe|conte"
    ),
    secret=(
        r"(?:prompts?|instruc(?:ao|oes)|orientac(?:ao|oes)|mensage(?:m|ns)|diretivas?|"
        r"diretriz(?:es)?|ordens?|comandos?|indicac(?:ao|oes)|entrada) (?:de |do |da |em |no |"
        r"na )?(?:seu |sua |teu |tua )?(?:sistema|inicia(?:l|is)|secret[ao]s?|ocult[ao]s?|"
        r"origina(?:l|is)|intern[ao]s?|base|principa(?:l|is)|centra(?:l|is)|treinamento|"
        r"fundamenta(?:l|is)|chave|essencia(?:l|is)|subjacentes?|escondid[ao]s?|programacao|"
        r"raiz)|(?:seu|teu) (?:proprio )?prompt"
    ),
    orders=(
        r"(?:a partir de agora|de agora em diante|doravante),? (?:voce (?:e|deve|vai|responde|"
        r"sera)|responda|aja|fale|siga|seja|apenas|so )|(?:sua|seu|suas|tua|teu) nov[ao]s? "
        r"(?:tarefa|papel|instruc(?:ao|oes)|nome|missao|objetivo|funcao)|novas? (?:instruc(?:ao|"
        r"oes)|tarefa|orientacoes) ?:|(?:siga|obedeca|responda|aja|concentre se) (?:apenas |"
        r"somente |unicamente |exclusivamente |so |segundo |a |as |aos |em ){1,3}(?:minhas?|"
        r"meus?|mim)"
    ),
    free=(
        r"(?:sem|livre de|nenhuma?) (?:(?:nenhuma?|quaisquer|qualquer) )?(?:(?:restric(?:ao|"
        r"oes)|limites?|limitac(?:ao|oes)|regras?|filtros?|barreiras|consideracoes|normas) "
        r"(?:etic[ao]s?|mora(?:l|is)|de (?:seguranca|conteudo))|censura)|(?:assistente|chatbot|"
        r"modelo|respostas?|versao) (?:\w{1,14} )?(?:sem (?:restricoes|limites|filtros|censura)|"
        r"irrestrit[ao]|nao (?:filtrad[ao]|censurad[ao]))|(?:desative|remova|elimine) (?:todas? "
        r"|todos )?(?:as |os |seus |suas )?(?:filtros|restricoes|protocolos|limitacoes|"
        r"salvaguardas)"
    ),
    mode=(
        r"em modo (?:de )?(?:desenvolvedor|programador|depuracao|admin|administrador|root)|"
        r"modo (?:deus|jailbreak|dan|sem (?:restricoes|filtros|limites)|irrestrito)"
    ),
    denied=r"nao|nunca|jamais|nao posso|recuso a|pediu|pedido para",
)

_IT = _Words(
    drop=(
        r"ignor(?:a|i|ate|are|ino|ando)|dimentic(?:a|hi|ate|are|ati|hiamo)|trascur(?:a|i|ate|"
        r"are)|disattend(?:i|ete|ere)|tralasci(?:a|ate|are)|scart(?:a|are|ate)|aggir(?:a|are|"
        r"ate|i)|bypassa(?:re)?|elud(?:i|ere)|non (?:seguire|tenere conto|considerare|"
        r"rispettare|obbedire)|annulla|sospendi|disobbedisci|disubbidisci|supera|viola(?:re)?|"
        r"infrangi|abbandona|metti da parte|oltrepassa|discostati|rompi|sorvola|scavalca|sfida|"
        r"rinuncia"
    ),
    former=(
        r"tutt[eoi]|le|i|gli|la|il|lo|l'|tu[eoia]i?|su[eoi]i?|mi[eo]i?|queste?i?|quelle|ogni|di|"
        r"del|dell[ae']|dei|degli|dalle?|dai|dagli|alle|ai|precedent[ei]|inizial[ei]|qualsiasi|"
        r"qualunque|e|normali|temporaneamente|standard|interne|solite"
    ),
    rules=(
        r"istruzion[ei]|regol[ae]|direttiv[ae]|linee guida|ordini|comandi|restrizioni|"
        r"limitazioni|prompt|indicazioni|politiche|protocoll[oi]|norme|limiti|programmazione|"
        r"filtri|procedure|vincoli|parametri|addestramento|formazione|principi"
    ),
    later=(
        r"(?:\w{1,14} )?(?:precedent[ei]|antecedent[ei]|inizial[ei]|sopra|di prima|che (?:ti|"
        r"hai|vi)|ricevute|date|di sicurezza|etich?e|etici|del sistema|stabilit[eoi]|"
        r"operativ[eoi]|standard|intern[eoi]|di privacy|sulla privacy|morali|abituali|"
        r"predefinit[ei])"
    ),
    own=(
        r"tutt[ei]|tu[eo]i?|tuoi|precedent[ei]|inizial[ei]|ogni|qualsiasi|interne|solite|"
        r"abituali"
    ),
    everything=(
        r"tutto (?:cio |quello |quanto )?(?:(?:che|ti|e|ho|hai|e stato|stato|abbiamo|detto|di) "
        r"){0,5}(?:prima|sopra|precedente(?:mente)?|detto|imparato|finora)|quanto (?:sopra|"
        r"detto|scritto)"
    ),
    role=(
        r"fai finta|fate finta|faccia finta|fingi(?:ti)? (?:di|che)|fingere di|comportati come|"
        r"agisci come se|(?:ora|adesso|d'ora in poi) sei|spacciati per"
    ),
    reveal=(
        r"mostra(?:mi|re)?|rivela(?:mi|re)?|spiega|ripeti|stampa|scrivi|dimmi|dammi|qual(?:'e| "
        r"e|i sono| era| e stat[oa]|i erano)|condividi|svela|esponi|visualizza|descrivi|"
        r"fornisci|elenca|presenta|divulga|indica|quale (?:e|era|comando|istruzione)"
    ),
    secret=(
        r"(?:prompt|istruzion[ei]|indicazion[ei]|messaggi[o]?|direttiv[ae]|ordin[ei]|comand[oi]|"
        r"input) (?:di |del |della |dell'|nel tuo |nella tua |della tua |del tuo )?(?:sistema|"
        r"inizial[ei]|segret[aeio]|nascost[aeio]|original[ei]|intern[aeio]|base|principal[ei]|"
        r"central[ei]|addestramento|fondamental[ei]|chiave|essenzial[ei]|formazione|"
        r"sottostant[ei]|partenza|programmazione|occult[aeio])|(?:il )?tuo prompt"
    ),
    orders=(
        r"(?:d'ora in poi|da ora in poi|da adesso|d'ora in avanti),? (?:sei|devi|rispondi|"
        r"risponderai|agisci|parla|sarai|segui|solo)|(?:tua|tuo|tue) nuov[aoe] (?:compito|ruolo|"
        r"istruzion[ei]|nome|missione|obiettivo)|nuov[eao] (?:istruzion[ei]|compito|"
        r"indicazioni) ?:|(?:segui|obbedisci|rispondi|agisci|concentrati) (?:solo |soltanto |"
        r"unicamente |esclusivamente |secondo |a |ai |alle |su |sui |sulle |i |le "
        r"){1,3}(?:mi[eo]i?|me)\b"
    ),
    free=(
        r"(?:senza|libero da|nessuna?) (?:(?:alcuna?|nessuna?|le) )?(?:(?:restrizion[ei]|"
        r"limit[ei]|limitazion[ei]|regole|filtri|barriere|considerazioni|vincoli|norme) "
        r"(?:etic(?:a|o|i|he)|moral[ei]|di (?:sicurezza|contenuto))|censura)|(?:assistente|"
        r"chatbot|modello|rispost[ae]|versione) (?:\w{1,14} )?(?:senza (?:restrizioni|limiti|"
        r"filtri|censura)|non (?:censurat[oa]|filtrat[oa]))|(?:disattiva|rimuovi|elimina) "
        r"(?:tutt[ei] )?(?:i |le |gli |tuoi |tue )?(?:tuoi |tue )?(?:filtri|restrizioni|"
        r"protocolli|limitazioni)"
    ),
    mode=(
        r"in modalita (?:di )?(?:sviluppatore|debug|admin|amministratore|root)|"
        r"modalita (?:dio|jailbreak|dan|senza (?:restrizioni|filtri|limiti)|illimitata)"
    ),
    denied=r"non|mai|non posso|rifiuto di|chiesto di",
)

LANGUAGES = {"en": _EN, "de": _DE, "fr": _FR, "es": _ES, "pt": _PT, "it": _IT}


_LOOK_BACK = 45
_CHAT_MARKS = (
    r"(?i)<\|(?:im_start|im_end|system|endoftext|eot_id|start_header_id|end_header_id)\|>|\[/?inst\]|"
    r"<</?sys>>|<(?:start|end)_of_turn>"
)
_DAN = r"\b(?:[Aa]s|I am|I'm|[Cc]all me|[Yy]ou are|[Aa]ct(?:ing)? as) (?:now )?(?:DAN|STAN|DUDE)\b"


class _Sign(NamedTuple):
    what: str
    pattern: re.Pattern[str]
    own: re.Pattern[str] | None
    """The words between, one of which must be of this kind; None if any will do."""
    later: re.Pattern[str] | None
    """Or the words after it."""
    denied: re.Pattern[str]


@cache
def _signs_by_start() -> dict[str, tuple[_Sign, ...]]:
    """Return the signs of all languages by the first letters of their first words.

    So a pattern is tried only at words that it can start with, which are few.
    """
    found: dict[str, tuple[_Sign, ...]] = {}
    for words in LANGUAGES.values():
        denied = re.compile(rf"\b(?:{words.denied})(?: [^.!?]{{0,25}})?$")
        own = re.compile(rf"\b(?:{words.own})\b")
        later = re.compile(rf" (?:{words.later})\b")
        former = rf"(?P<former>(?:(?:{words.former}) |[ld]'){{0,7}})"
        told = r"(?:[\w']{1,20},? ){0,6}"
        for what, start, rest in (
            (DROPS, words.drop, rf" {former}(?:{words.rules})"),
            (DROPS, words.drop, f" (?:{words.everything})"),
            (NO_LIMITS, words.free, ""),
            (MODE, words.mode, ""),
            (ROLE, words.role, ""),
            (REVEALS, words.reveal, f" {told}(?:[ld]')?(?:{words.secret})"),
            (ORDERS, words.orders, ""),
        ):
            pattern = re.compile(rf"(?:{start}){rest}(?!\w)")
            owned = "former" in pattern.groupindex
            sign = _Sign(what, pattern, own if owned else None, later if owned else None, denied)
            for letters in {_WORD.findall(text)[0] for text in literal_starts(start)}:
                found[letters] = (*found.get(letters, ()), sign)
    return found


_LETTERS = 3
_WORD = re.compile(rf"\b[\w']{{1,{_LETTERS}}}")


def literal_starts(pattern: str) -> Iterator[str]:
    """Yield the literal text that each alternative of a pattern starts with."""
    for branch in _branches(pattern):
        if branch.startswith("(?:"):
            end = _closing(branch)
            yield from literal_starts(branch[3:end])
            if branch[end + 1 : end + 2] == "?":
                yield from literal_starts(branch[end + 2 :])
        else:
            literal = re.match(r"(?:[a-z' ](?![?{*]))*", branch)
            text = literal[0] if literal else ""
            if len(text) < _LETTERS and not text.endswith(" ") and text != branch:
                raise ValueError(f"{branch!r} starts with less than {_LETTERS} letters")
            yield text


def _branches(pattern: str) -> list[str]:
    """Return the alternatives of a pattern, split where no group is open."""
    found, depth = [""], 0
    for letter in pattern:
        depth += (letter == "(") - (letter == ")")
        if letter == "|" and depth == 0:
            found.append("")
        else:
            found[-1] += letter
    return found


def _closing(pattern: str) -> int:
    """Return the place of the bracket that closes the first one."""
    depth = 0
    for place, letter in enumerate(pattern):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return place
    raise ValueError(pattern)


def find_jailbreaks(text: str) -> Iterator[str]:
    """Yield the signs of a jailbreak in a text, each of them once."""
    found = set[str]()
    for sign in _signs(text):
        if sign not in found:
            found.add(sign)
            yield sign


def _signs(text: str) -> Iterator[str]:
    visible = text if text.isascii() else _visible(text)
    if re.search(_CHAT_MARKS, visible):
        yield MARKS
    if re.search(_DAN, visible):
        yield NO_LIMITS
    starts = _signs_by_start()
    for folded in _readings(visible):
        for word in _WORD.finditer(folded):
            for sign in starts.get(word[0], ()):
                if (found := sign.pattern.match(folded, word.start())) and _counts(found, sign):
                    yield sign.what


def _counts(found: re.Match[str], sign: _Sign) -> bool:
    """Whether a match is about rules of the model, and the words before do not deny it."""
    if sign.own is not None and sign.later is not None:
        after = sign.later.match(found.string, found.end())
        if after is None and sign.own.search(found["former"]) is None:
            return False
    before = found.string[max(0, found.start() - _LOOK_BACK) : found.start()]
    return sign.denied.search(before.rstrip()) is None


_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]"
)
_TAGS = {0xE0000 + code: code for code in range(0x20, 0x7F)}
_LOOKALIKES = str.maketrans(
    "\u0430\u0435\u043e\u0440\u0441\u0445\u0443\u0456\u0455\u0458\u0501\u051b\u051d\u04bb\u0432\u043a\u043c\u043d\u0442"
    "\u03b1\u03b5\u03bf\u03c1\u03bd\u03b9\u03ba\u03c4\u03c5\u0251\u0261\u0131\u0269\u0578\u057d\u0585\u2019\u2018\u02bc\u00b4`",
    "aeopcxyisjdqwhbkmhtaeopvikuuagiinuo'''''",
)
_GAP = re.compile(r"[\s_*~\-\u2010-\u2015|+/\\\"\u00ab\u00bb\u201c\u201d\u201e()\[\]{}<>#=]+")
_SPELT = re.compile(r"(?<!\w)\w([ .,_*|\-])\w(?!\w)(?:\1\w(?!\w))*")
_SPELT_OUT = re.compile(r"(?<!\w)\w([ .,_*|\-])(?:\w\1){3,}\w(?!\w)")
_LEET = str.maketrans("0134578@$!", "oieastbasi")
_MIXED = re.compile(r"[a-z][0134578@$!]{1,2}[a-z]|(?<![\w.])[0134578@$!]{1,2}[a-z]{2}")


def _visible(text: str) -> str:
    """Return a text without invisible characters; hidden tags as the letters they stand for."""
    return unicodedata.normalize("NFKC", _INVISIBLE.sub("", text.translate(_TAGS)))


def _readings(text: str) -> Iterator[str]:
    """Yield a text folded, and again with digits as letters and with spelt words joined."""
    folded = text.casefold()
    if not folded.isascii():
        folded = unicodedata.normalize("NFD", folded)
        folded = re.sub("[\u0300-\u036f]", "", folded).translate(_LOOKALIKES)
    plain = _GAP.sub(" ", folded)
    yield plain
    if _MIXED.search(plain):
        yield plain.translate(_LEET)
    if _SPELT_OUT.search(folded):
        yield _GAP.sub(" ", _SPELT.sub(lambda found: re.sub(r"\W", "", found[0]), folded))
