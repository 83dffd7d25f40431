"""The plots: each tells one story with the cast it is given. What happens follows from what was said before: a thing
is found where it was left, what was borrowed is given back, who is at the pond is at the pond until they go home.

A plot takes a Story in which {h} is the hero, with {h.kind} and {h.home}, and leaves the ending to `closing`.
"""
import lexicon as lex

SAID = 'said'
ANSWERED = '[said|answered|replied]'
ASKED = 'asked'
CRIED = '[cried|called|shouted|said]'


# ---- beginnings and ends ----

def opening(s):
    hero = s.child() if s.chance(0.5) else s.animal()
    s.known['h'] = hero
    s.known.update(good=s.pick(lex.GOOD_TRAITS), weak=s.pick(lex.WEAK_TRAITS), look=s.pick(lex.LOOKS))
    s.known['p'] = s.place()
    s.known['sunny'], s.known['time'], s.known['season'] = s.pick(lex.SUNNY), s.pick(lex.TIMES), s.pick(lex.SEASONS)
    s.known['sad'], s.known['glad'] = s.pick(lex.SAD), s.pick(lex.GLAD)
    s.tell(s.pick(('[Once upon a time|Once upon a time|Once|Long ago] there [was|lived] a [{look}|{good}|{look}] '
                   '{h.kind} '
                   '[named|called] {h}.',
                   '{h} was a [{look}|{good}] {h.kind}[| who lived near {p}].',
                   'In a {h.home} near {p} lived a [{look}|{good}] {h.kind} [named|called] {h}.',
                   'There was once a {h.kind} [named|called] {h} who was [very|always|often] {good}.')))
    s.maybe(0.45, '[Everyone|Everybody] [liked|knew] {h} because {h.he} was so {good}.'
            if s.chance(0.5) else '{h~} was {good}, but sometimes [also|a little|a bit too] {weak}.')


def one_day(s):
    s.paragraph()
    if s.chance(0.25):
        s.known['time'] = 'morning'
        s.tell('[One {sunny} morning|One {season} morning|One morning], {h} [woke up|got up] '
               '[early|late|with a smile|with the sun] and '
               '{h.went} {p.to}.')
    else:
        s.tell('[One {sunny} {time}|One {season} {time}|One day|One {sunny} day|On a {sunny} {season} {time}|'
               'One {time}], '
               '{h} [{h.went} {p.to}|was {p.in}|was playing {p.in}|sat {p.in}].')
    s.maybe(0.5, '{p.sight}.' if s.chance(0.6) else '[The sun was shining|The sky was blue|A soft wind blew], and '
                                                    '{p.sight}.')


def closing(s, moral='', at_home=False, days=False):
    """How the hero feels, home and to bed, or what was learned. Who is at home does not go there; what took days was
    not one day."""
    s.paragraph()
    s.known['end'] = s.pick(lex.GLAD)
    shape = s.pick([0, 4, 5] + [1, 3] * (not at_home) + [2] * (not days))
    if shape == 0:
        s.tell('[That evening|That night|When the stars came out], {h} [lay in bed|fell asleep] with a '
               '[big|happy|warm] '
               '[smile|smile on {h.his} face].')
    elif shape == 1:
        s.tell('{h} [went home|ran home|{h.went} home] and was [very|so] {end}.')
    elif shape == 2:
        s.tell('[It had been a good day|What a day it had been|It was the best day of the {season}].')
    elif shape == 3:
        s.tell('{h} was [so|very] {end} and [sang|laughed|danced|smiled] all the way home.')
    elif shape == 4:
        s.tell('{h} [had not been so {end} for a long time|was {end}|had never been so {end}].')
    if moral and (shape == 5 or s.chance(0.6)):
        s.tell(s.pick(('From that day on, {h} knew that ' + moral + '.', '{h} had learned that ' + moral + '.',
                       '[And|And so] {h} never forgot that ' + moral + '.')))
    s.maybe(0.2, '[The end.|And that was that.|And that is the end of the story.]')


def friend(s, key='f'):
    who = s.known[key] = s.one_like(s.known['h'])
    s.known[key + '_who'] = s.phrase('{%s}[|, a [good|dear|old] friend,| from next door]' % key
                                     if who['home'] == 'house' else
                                     '{%s}[| the {%s.kind}|, a [good|dear|old] friend,]' % (key, key))


def family_or_wise(s, key='w'):
    s.known[key] = s.grown_up(s.known['h'])
    introduce(s, key)


def introduce(s, key):
    """A neighbour gets a trade once; nobody else needs one."""
    who = s.known[key]
    if 'trade' in who:
        s.known[key + '_intro'] = f'{who["name"]}, {who["trade"]},'
    else:
        s.known[key + '_intro'] = who['name']


# ---- the plots ----

def lost_thing(s):
    s.known['o'] = s.thing(lex.TOYS + lex.TREASURES + lex.WEARABLES)
    first, second, third = s.some(lex.HIDING, 3)
    s.known.update(a=first, b=second, c=third)
    s.tell('{h~} had a {o}[| that {h.he} loved very much| and took it everywhere].')
    s.maybe(0.5, 'It was a present from {w}.', w=s.grown_up(s.known['h']))
    one_day(s)
    s.tell('[Suddenly|Then|After a while] {h~} [saw|noticed] that the {o.n} was gone.')
    s.tell(s.pick(('"Oh no! Where is my {o.n}?" {h.he} ' + CRIED + '.',
                   '{h} was very {sad} and [began to cry|looked around].')))
    s.tell('{h} looked {a}, but the {o.n} was not there.')
    if s.chance(0.6):
        s.tell('{h~} looked {b}, but [there was only dust|there was nothing|it was not there either].')
    friend(s)
    s.paragraph()
    s.tell('[Then|Just then|Soon] {f_who} came [by|along] and ' + ASKED
           + ', "What [is wrong|happened|are you looking for]?"')
    s.tell('"I [lost|cannot find] my {o.n}," ' + ANSWERED + ' {h}.')
    s.tell(s.pick(('"Think back. Where did you [play|sit|rest] [last|this morning|yesterday]?" ' + ASKED + ' {f}.',
                   '"[Do not worry|Do not cry]. I will help you," ' + SAID + ' {f}.')))
    s.tell('[Together they|The two friends|{h} and {f}] looked {c}, and there [was|lay] the {o}!')
    s.tell('"[Thank you|Oh, thank you|Thank you so much], {f}!" ' + CRIED + ' {h}[| and hugged {f.him}].')
    s.maybe(0.5, '{h~} put the {o.n} [safely|carefully] [into {h.his} pocket|into a box|under {h.his} arm].')
    closing(s, s.pick(('two pairs of eyes see more than one', 'a good friend helps without being asked',
                       'things should be put back in their place')))


def sharing(s):
    friend(s)
    s.known['o'] = s.thing(lex.TOYS)
    one_day(s)
    s.tell('{h~} [brought|had] a {o} [and played with it|with {h.him}].')
    s.tell('[Soon|Then] {f_who} [came|came by] and ' + ASKED + ', "May I play with [it|the {o.n}] too?"')
    s.tell('"No! [It is mine|The {o.n} is mine]," ' + ANSWERED + ' {h}.')
    s.tell('{f} was {sad} and [went away|sat down under a tree|walked away slowly].')
    s.paragraph()
    s.tell('{h} played alone, but [it was no fun|it was boring|soon it was dull].')
    if s.chance(0.5):
        family_or_wise(s)
        s.tell('{w_intro} saw it and said, "[A toy is more fun with a friend|Why do you play alone|'
               'Joy grows when you share it]'
               '."')
    s.tell('{h} thought [about it|about {f}|for a while]. Then {h.he} [went|ran] to {f}.')
    s.tell('"I am sorry. [Come and play with me|We can share the {o.n}|You may have the first turn]," ' + SAID +
           ' {h}.')
    s.tell('{f} [smiled|was happy again|jumped up]. [They took turns|They played together] with the {o.n} until '
           '[it was dark|the sun went down|supper].')
    closing(s, s.pick(('sharing makes everything more fun', 'a friend is worth more than a toy',
                       'joy grows when it is shared')))


def rescue(s):
    s.known['x'] = s.pick([kind for kind in lex.SMALL_ANIMALS if kind != s.known['h']['kind']])
    s.known['t1'], s.known['t2'], s.known['t3'] = s.pick(lex.TROUBLES)
    one_day(s)
    s.tell('[Suddenly|There|Then] {h~} [heard|heard] a [small|weak|sad] [voice|cry|sound]. [It was|It came from] a '
           '{x} that {t1}.')
    s.tell(s.pick(('"[Please help me|Help|Help me, please]!" ' + CRIED + ' the {x}.',
                   'The {x} looked at {h} with big eyes.')))
    s.tell('"[Do not be afraid|Stay calm|I will help you]," ' + ANSWERED + ' {h}.')
    s.maybe(0.5, 'At first {h} did not know what to do. [Then {h.he} had an idea|But {h.he} did not give up].')
    s.tell('{h} {t2}. [Slowly|At last|Little by little] the {x} {t3}.')
    s.tell('"Thank you! [I will never forget this|You are so kind|You are a true friend]," ' + SAID + ' the {x}.')
    s.paragraph()
    later = int(s.random() * 3)
    if later == 0:
        s.known['o'] = s.thing(lex.TREASURES)
        s.tell('The next [day|morning], {h} found a {o} in front of the {h.home}. It was a present from the {x}.')
    elif later == 1:
        s.tell('A [week|few days] later, {h} got lost {q.in}. [Then|But] the {x} came and showed {h.him} the way home.',
               q=s.place(s.known['p']))
    else:
        s.tell('From then on the {x} came to [visit|see] {h} every [day|{time}], and they played {g}.',
               g=s.pick(lex.GAMES))
    closing(s, s.pick(('even a small kindness matters', 'who helps others is never alone',
                       'one is never too small to help')), days=True)


def gift(s):
    friend(s)
    s.known['gift'], s.known['made'], s.known['stuff'] = s.pick(lex.GIFTS)
    s.tell('{h~} had a [good|dear|best] friend [named|called] {f}.')
    s.paragraph()
    s.tell('[It was nearly|The next day was|Soon it would be] the birthday of {f}.')
    s.tell('"What can I give {f}? I have no money," [thought|said] {h}.')
    if s.chance(0.6):
        family_or_wise(s)
        s.tell('"[Make something yourself|The best gift comes from the heart|Think of what {f} likes]," ' + SAID +
               ' {w}.')
    s.tell('So {h} took {stuff} and {made} {gift}[| all by {h.self}]. It took [all {time}|a long time|many hours].')
    s.maybe(0.5, 'The first one [was not good|went wrong], but {h.he} [tried again|did not give up|began again].')
    s.paragraph()
    s.tell('[At the party|The next day|The next morning], {h} [gave|brought] {f} [the present|the gift]. '
           '"[Happy birthday|This is for you|I made it for you]!" said {h}.')
    s.tell('{f} [opened it|looked at it] and [smiled|laughed with joy|was speechless]. "{gift}! '
           '[It is the best present of all|I love it|It is wonderful]!" ' + CRIED + ' {f}.')
    s.maybe(0.6, 'They [ate cake|played {g}|danced|sang] until [late|the evening|it was dark].', g=s.pick(lex.GAMES))
    closing(s, s.pick(('a gift made with love is the best gift', 'the best gifts cost nothing')), days=True)


def fear(s):
    s.known['fear'], s.known['scene'], s.known['advice'], s.known['act'] = s.pick(lex.FEARS)
    s.known['when'] = 'night' if s.known['fear'] == 'the dark' else s.known['time']
    s.tell('[But there was one thing {h.he} did not like|But {h} had a secret]: {h.he} was afraid of {fear}.')
    s.paragraph()
    s.tell('One {when}, {h} [had to be brave|could not run away]. {scene}.')
    s.tell('{h~} [trembled|shook|held {h.his} breath] and [wanted to hide|wanted to run away|closed {h.his} eyes].')
    family_or_wise(s)
    s.tell('[Then|Just then] {w_intro} came and ' + ASKED + ', "[What is wrong|Why are you trembling], {h}?"')
    s.tell('"I am afraid of {fear}," [whispered|said] {h}.')
    s.tell('"[Listen|I was afraid once too|I understand]. Remember, {advice}," ' + ANSWERED + ' {w}.')
    s.paragraph()
    s.tell('{h} [took a deep breath|thought about it] and {act}. [It was hard at first|{h.his} heart beat fast|'
           'At first it was not easy], but [soon|slowly|bit by bit] [the fear became smaller|{h} felt better|the fear '
           'went away].')
    s.tell('"[I did it|It is not so bad|I am not afraid any more]!" ' + CRIED + ' {h}.')
    s.maybe(0.6, '"[I knew you could do it|I am proud of you|You were very brave]," ' + SAID + ' {w}.')
    closing(s, s.pick(('being brave means to go on with a trembling heart', 'fear becomes small when you look at it',
                       'everybody is afraid of something')), at_home=True)


def seed(s):
    s.known['seed'], s.known['plant'], s.known['fruit'] = s.pick(lex.SEEDS)
    family_or_wise(s)
    one_day(s)
    s.tell('[There {h.he} met {w_intro} who gave {h.him}|{w_intro} came by and gave {h.him}] a {seed}. '
           '"[Plant it and wait|Put it into the earth|Take good care of it]," ' + SAID + ' {w}.')
    s.tell('{h} [dug|made] a [small|little] hole, put the {seed} into it and [gave it water|watered it].')
    s.tell('The next day {h} [looked|came back], but [there was nothing|nothing had grown|the earth was bare].')
    s.tell('"[Why does it not grow|When will it grow|Is it asleep]?" ' + ASKED + ' {h}.')
    s.tell('"[Be patient|Good things take time|Wait a little]," ' + ANSWERED + ' {w}.')
    s.paragraph()
    s.tell('[Every day|Every morning|Each {time}] {h} gave it water. [The sun shone|It rained and the sun shone|'
           'Days went by].')
    s.maybe(0.4, '[Once|One day] a [snail|crow|hen] wanted to eat it, but {h} [built a little fence|chased it away].')
    s.tell('[At last|Then, one {time}|After two weeks], there was a [tiny|small|little] green [leaf|sprout]! It grew '
           '[and grew|higher and higher|a bit every day] until it was a {plant} with {fruit}.')
    friend(s)
    s.maybe(0.6, '{h} [showed it to|shared it with] {f}, [and they were both amazed|and they danced around it|'
                 'and together they laughed].')
    closing(s, s.pick(('good things take time', 'who waits and cares is rewarded', 'small things can become big')),
            days=True)


def spoiled_plan(s):
    friend(s)
    s.known['plan'], s.known['do'] = s.pick(lex.PLANS)
    s.known['bad'] = s.pick(('it began to rain', 'a storm came', 'dark clouds came and it rained',
                              'thunder rolled and rain fell'))
    s.tell('{h} and {f} [had a plan|had been waiting for this day]: [they wanted to have|today they would have] '
           '{plan}.')
    s.paragraph()
    s.tell('[But that morning|But then|Then, all of a sudden,] {bad}.')
    s.tell('"Now we cannot {do}," ' + SAID + ' {f}[| with a sigh|, and a tear ran down]. {f} was {sad}.')
    s.tell('{h} [looked out of the window|thought hard|sat and thought]. [Then|Suddenly] {h.he} had an idea.')
    fun, more = s.some(lex.INDOOR_FUN, 2)
    s.tell('"[Come|Come on|Wait], [we can have fun inside|the rain cannot stop us]!" ' + CRIED + ' {h}.')
    s.tell('[So they|{h} and {f}] {fun}. [Then|After that] they {fun2}[| and laughed a lot].', fun=fun, fun2=more)
    s.paragraph()
    s.tell('[When they looked outside|In the evening|At last] [the rain had stopped|the rain was over], and '
           '[there was a rainbow over {p}|the sun came out|everything smelled fresh].')
    s.tell('"[I did not even notice|This was better than {plan}|Rainy days are fun too]!" ' + SAID + ' {f}.')
    closing(s, s.pick(('a bad day can become a good one', 'fun can be found anywhere',
                       'rain is not the end of a plan')), at_home=True)


def new_friend(s):
    friend(s)
    game, other = s.some(lex.GAMES, 2)
    s.known.update(g=game, g2=other, q=s.place(s.known['p']))
    s.tell('{h~} was [often alone|lonely] [because there was nobody to play with|and wished for a friend].')
    one_day(s)
    s.tell('There {h} saw a {f.kind} [whom {h.he} had never seen before|who sat all alone]. '
           '[The {f.kind} looked {sad}|The {f.kind} said nothing].')
    s.tell('{h} [was shy|did not know what to say], but {h.he} [took a step|went closer] and said, "Hello, I am {h}. '
           '[What is your name|Who are you]?"')
    s.tell('"I am {f}. [I am new here|We have just moved here from {q}|I do not know anybody here]," ' + ANSWERED +
           ' the {f.kind}.')
    s.tell('"Do you want to play {g}?" ' + ASKED + ' {h}.')
    s.tell('"[Yes, please|Oh yes|I would love to]!" ' + ANSWERED + ' {f}.')
    s.paragraph()
    s.tell('They played {g}[| and then {g2}]. {f} [was very good at it|won|laughed loudly|was fast], and {h} '
           '[laughed|did not mind|clapped].')
    s.known['o'] = s.thing(lex.TREASURES)
    s.maybe(0.6, '[Before they went home|In the evening], {f} gave {h} a {o}. "[So that you remember me|'
                 'For my first friend here]," ' + SAID + ' {f}.')
    s.tell('[The next day|From that day on|Every {time} after that], they met {p.in} [again|and played together].')
    closing(s, s.pick(('a friend begins with a hello', 'saying hello can change everything',
                       'nobody needs to stay alone')), days=True)


def cooking(s):
    s.known['dish'], s.known['main'], s.known['missing'] = s.pick(lex.DISHES)
    s.known['ask'] = s.known['missing'] if s.known['missing'][:3] == 'an ' else 'some ' + s.known['missing']
    s.known['n'] = s.neighbour()
    family_or_wise(s)
    s.paragraph()
    s.tell('[One {season} {time}|One {time}|One day], {h} wanted to make {dish}[| for {w}]. {h.he} took '
           '[the big pot|a big bowl], {main} and a spoon.')
    s.tell('[But then|Then|But] {h} [saw|noticed] that {h.he} had no {m} [left|in the house].',
           m=s.known['missing'].removeprefix('an '))
    s.tell('"Without {missing} [it will not be good|I cannot make {dish}]," ' + SAID + ' {h}.')
    s.tell('So {h.he} {h.went} to {n} {n.trade}. "[Hello|Good day], {n}. [Could I borrow|May I have|'
           'Could you give me] {ask}?" ' + ASKED + ' {h}.')
    s.tell('"[Of course|Gladly|Yes]. [Come and bring me some {dish} later|Here you are|Take what you need]," ' +
           ANSWERED + ' {n}.')
    s.paragraph()
    s.tell('{h} [ran|went] home, [mixed everything|put everything together|stirred and stirred] and '
           '[waited|tasted it]. [Soon|Before long] the whole house smelled [good|wonderful|sweet].')
    s.maybe(0.4, 'A little of it [fell on the floor|was burned], but [that did not matter|{h} only laughed].')
    s.tell('{h~} [brought|carried] [a bowl|a plate] of {dish} to {n}, who [took a bite|tried it] and said, '
           '"[It is delicious|This is the best {dish} I ever had|Well done]!"')
    s.tell('Then {h} and {w} ate the rest.' if s.chance(0.5) else 'Then everyone sat [down together|around the table] '
                                                                  'and ate.')
    closing(s, s.pick(('neighbours help each other', 'food tastes best when it is shared',
                       'it is good to ask for help')), at_home=True)


def race(s):
    friend(s)
    s.known['q'] = s.place(s.known['p'])
    s.tell('{h} [had a neighbour|knew a {f.kind}] [named|called] {f} who [liked to boast|was very fast].')
    one_day(s)
    s.tell('"I am faster than [everybody|you|anyone]," ' + SAID + ' {f}. "[Nobody can beat me|You will never win]."')
    s.tell('"[Then let us have a race|Let us race] {q.to}," ' + ANSWERED + ' {h}.')
    s.tell('[They|{h} and {f}] stood side by side. "One, two, three, go!" [And they ran|They ran off|Off they went].')
    s.tell('{f} was [soon far ahead|faster], [and laughed|and looked back with a grin].')
    shape = int(s.random() * 3)
    s.paragraph()
    if shape == 0:
        s.tell('[But then|Halfway] {f} [lay down under a tree|stopped to eat berries] and '
               '[fell asleep|forgot the race]. {h} [went on and on|ran slowly but did not stop].')
        s.tell('When {f} [woke up|looked up], {h} was already {q.in}. {h} had won!')
        s.tell('"[You were better today|I was too proud]," ' + SAID + ' {f}. [They shook hands|They laughed together].')
        moral = 'slow and steady can win'
    elif shape == 1:
        s.tell('[But then|Halfway] {f} [tripped over a root|fell over a stone] and '
               '[hurt {f.his} knee|could not get up].')
        s.tell('{h} could have won. But {h.he} stopped and ' + ASKED + ', "[Are you hurt|Can you stand]?"')
        s.tell('{h} helped {f} up, and together they [walked|went] {q.to}. "[You are a real friend|'
               'You could have won]," ' + SAID + ' {f}.')
        moral = 'helping is better than winning'
    else:
        s.tell('{h} ran as fast as {h.he} could, but {f} was the first to be {q.in}. {h} was {sad} for a moment.')
        s.tell('Then {h} smiled and said, "[Well done|You are really fast], {f}!" [{f} was surprised|{f} blushed]. '
               '"[I will show you how I do it|We can train together]," ' + SAID + ' {f}.')
        moral = 'one can lose and still be happy'
    closing(s, moral)


def broken(s):
    s.known['b'] = s.thing(None, s.pick(lex.BREAKABLES))
    s.known['toy'] = s.pick(('ball', 'hoop', 'paper plane', 'toy horse', 'top', 'wooden sword'))
    who, he = s.pick(lex.FAMILY[:6])
    s.known['w'] = s.person(f'{s.known["h"]["his"]} {who}', he, who, 'house', 'went')
    s.known['hide'] = s.pick(lex.HIDING[:6])
    s.paragraph()
    s.tell('One {time}, {h} played with a {toy} in the house, although {w} had said, '
           '"[Play outside|Not in the house|Be careful]!"')
    s.tell('[Crash|Bang|Clink]! [The {toy} hit|The {toy} flew against] the {b}, and the {b.n} broke.')
    s.tell('{h} [was frightened|turned pale|felt hot and cold]. {h.he} [swept up the pieces|took the pieces] and hid '
           'them {hide}.')
    s.paragraph()
    s.tell('[Later|In the evening|After a while] {w} came and ' + ASKED + ', "Where is the {b.n}?"')
    if s.chance(0.5):
        s.tell('"I do not know," ' + ANSWERED + ' {h}. But [{h.his} face was red|it felt wrong|{h.his} stomach hurt].')
        s.tell('{h} could not [eat|sleep|play]. [At last|Then] {h.he} [went|ran] to {w} and said, "I broke the {b.n}. '
               'I am sorry."')
    else:
        s.tell('{h} looked at the floor. "I broke it and hid it {hide}. I am [so|very] sorry," {h.he} said.')
    s.tell('{w} [was silent for a moment|looked at {h} for a long time]. "[It was brave to tell the truth|'
           'Thank you for telling me]. [A {b.n} can be mended|You are more important than a {b.n}]," ' + SAID + ' {w}.')
    s.tell('Together they [glued the pieces|mended the {b.n} with glue]. [It had a few cracks|It did not look new], '
           'but [it was fine|{h} liked it even more].')
    closing(s, s.pick(('the truth makes the heart light', 'it is better to tell the truth',
                       'a mistake can be forgiven')), at_home=True)


def lost_way(s):
    s.known['x'] = s.pick(('butterfly', 'white rabbit', 'little bird', 'dragonfly', 'squirrel',
                           'yellow leaf in the wind'))
    clue = s.pick((('the smoke from the chimney', 'saw'), ('the sound of the church bell', 'heard'),
                   ('the old bridge', 'saw'),
                   ('the light in the window', 'saw'), ('the barking of a dog {h.he} knew', 'heard'),
                   ('the big oak tree', 'saw')))
    s.known['clue'], s.known['sense'] = s.phrase(clue[0]), clue[1]
    one_day(s)
    s.tell('There {h~} saw a {x} and [followed|ran after] it, [farther and farther|on and on|without looking back].')
    s.tell('When {h} stopped, [everything looked strange|nothing looked the way it should|'
           'there was no path any more]. "I am lost," ' + SAID + ' {h}.')
    s.tell('It [was getting dark|became cold|began to rain a little]. {h} was {sad}, but {h.he} did not [cry|give up].')
    if s.chance(0.7):
        s.known['w'] = s.person('the ' + s.pick(lex.WISE)[0], s.pick(('he', 'she')), 'animal', 'tree', 'went')
        s.paragraph()
        s.tell('[On a branch|Beside the path|Not far away] sat {w}. "[Can you help me|Do you know the way home]?" ' +
               ASKED + ' {h}.')
        s.tell('"[Be still and use your eyes and ears|Stop and look around|First sit down and breathe]," ' + ANSWERED +
               ' {w}.')
    s.tell('{h} stood still. [Then|Suddenly|And really,] {h.he} {sense} {clue}!')
    s.tell('"[I know where that is|That is the way home]!" ' + CRIED +
           ' {h}, and {h.he} ran [in that direction|as fast as {h.he} could].')
    who, he = s.pick(lex.FAMILY[:6])
    s.tell('[At home|At the door] {m} was waiting. "[There you are|We looked for you everywhere|I was so worried]!" ' +
           SAID + ' {m} and hugged {h}.',
           m=s.person(f'{s.known["h"]["his"]} {who}', he, who, 'house', 'went'))
    closing(s, s.pick(('one should stay on the path', 'being calm helps to find the way', 'home is the best place')),
            at_home=True)


def building(s):
    s.known['what'], s.known['bad'], s.known['fails'], s.known['stuff'], s.known['works'] = s.pick(lex.BUILDS)
    s.known['n1'] = s.known['what'].split(' ', 1)[1]
    friend(s)
    one_day(s)
    s.tell('"I want to build {what}," ' + SAID + ' {h}[| to {f}].')
    s.tell('[So {h.he}|{h}] took {bad} and [began to work|worked all {time}|began at once]. But the {n1} {fails}.')
    s.tell('{h} was {sad}. "[It is no use|I will never be able to do it|It does not work]," ' + SAID + ' {h}.')
    s.paragraph()
    s.tell('{f} [looked at it|came and looked] and said, "[I think|You know,] {bad} [cannot work|will not do]. '
           '[Let us try|We should take|Try] {stuff}."')
    s.tell('[Together they|{h} and {f}] [found|looked for and found|brought] {stuff} [near {p}|{p.in}|in the shed] '
           'and [built it again|began once more].')
    s.maybe(0.5, '{h} [held it|measured] and {f} [tied the knots|hammered|pulled].')
    s.tell('This time the {n1} {works}! "[Hurray|It works|We did it|Look at that]!" ' + CRIED + ' {h}.')
    closing(s, s.pick(('one learns from what goes wrong', 'two heads are better than one',
                       'trying again is not a shame')))


def night_noise(s):
    s.known['noise'], s.known['cause'], s.known['it'] = s.pick(lex.NOISES)
    friend(s)
    s.paragraph()
    s.tell('One [night|dark night|{season} night], {h} [lay in bed|could not sleep|woke up]. [There was|{h.he} heard] '
           '{noise}.')
    s.tell('"[What was that|Who is there]?" [whispered|said] {h}. [Nobody answered|It was quiet|Then it came again].')
    guess = s.pick(('a ghost', 'a robber', 'a monster', 'a giant', 'a dragon', 'a wolf'))
    s.tell('"[Perhaps|Maybe] it is {guess}," [thought|whispered] {h}[| and pulled the blanket over {h.his} head].',
           guess=guess)
    if s.chance(0.5):
        s.tell('{h~} woke {f}, who was sleeping in the [next room|other bed]. "[Did you hear that|Do you hear it]?" ' +
               ASKED + ' {h}.')
        s.tell('"[Let us look together|We will go and see]," ' + ANSWERED + ' {f}. {h} took a lantern.')
        who = '[they|{h} and {f}]'
    else:
        s.tell('But {h} [was curious|wanted to know]. {h.he} took a lantern and [tiptoed|went slowly] '
               '[down the stairs|to the door|along the hall].')
        who = '{h}'
    s.paragraph()
    s.tell('The noise [became louder|came nearer]. ' + who + ' held the lantern high, and there was no {beast} at '
                                                             'all! It was only {cause}.',
           beast=guess.split(' ', 1)[1])
    s.tell('{h} [laughed|had to laugh|began to giggle]. "[You gave me a fright|And I was afraid of you], {it}," said '
           '{h}.' if s.chance(0.5) else
           '{h} [laughed|had to laugh|began to giggle] and went back to bed.')
    closing(s, s.pick(('one should look before being afraid', 'most noises have a simple cause',
                       'a little light chases fear away')), at_home=True)


def learning(s):
    s.known['skill'], s.known['where'], s.known['fail'], s.known['trick'] = s.pick(lex.SKILLS)
    friend(s)
    s.tell('{h~} wanted to learn to {skill}.')
    s.paragraph()
    s.tell('One {sunny} {time}, {h} tried it {where}. {h.he} {fail}.')
    s.tell(s.pick(('"[I cannot do it|It is too hard|I will never learn it]!" ' + CRIED + ' {h}.',
                   '{h} tried again and {fail} again.')))
    s.tell('{f_who} was [watching|there] and [did not laugh|smiled].')
    s.tell('"I [needed many days to learn it|could not do it at first either]. [Let me show you|Watch me]," ' + SAID +
           ' {f}.')
    s.paragraph()
    s.tell('[Every day|Every {time}|For a whole week] they [practised|tried it] together {where}. {h} '
           '{trick}[, as {f} had shown {h.him}| and listened to {f}|].')
    s.maybe(0.5, 'Sometimes it went [well|better], sometimes {h} {fail}[| again]. But {h.he} '
                 '[did not give up|went on].')
    s.tell('[And then|Then, one {time}|At last], {h} could {skill}! "[Look|Look at me|I can do it]!" ' + CRIED +
           ' {h}.')
    s.tell('{f} [clapped|cheered|jumped with joy].')
    closing(s, s.pick(('practice makes things easy', 'nobody is born knowing everything',
                       'one must try more than once')), days=True)


def greedy(s):
    s.known['parallel'] = s.pick(lex.BERRIES)
    friend(s)
    one_day(s)
    s.tell('There {h} and {f} found [many|lots of] {many}. {f} took [a few|a handful|five] and was content.')
    s.tell('But {h} wanted more [and more|than anyone]. {h.he} filled {h.his} [basket|bag|hat], {h.his} pockets and '
           'both arms.')
    s.tell('"[That is too much|You cannot carry all that|Leave some for the others]," ' + SAID + ' {f}.')
    s.tell('"I want them all!" ' + ANSWERED + ' {h}.')
    s.paragraph()
    s.tell('On the way home [there was a stream|the path was steep|the path was full of stones]. {h} could not see '
           '{h.his} feet, [tripped|slipped] and fell. [All the {many} rolled away|The {many} fell down and were gone].')
    s.tell('{h} sat [on the ground|in the mud] and [cried|had nothing left].')
    s.tell('{f} sat down [beside {h}|too] and said, "[You can have half of mine|Take some of mine|'
           'Let us share what I have]."')
    s.tell('{h} [was ashamed|looked up]. "Thank you, {f}. [Next time I will take only what I need|I was too greedy]," '
           '{h.he} said.')
    s.maybe(0.5, 'They ate together and [watched the clouds|looked at the river|talked until sunset].'
            if s.known['parallel'] not in ('shells', 'flowers', 'pine cones', 'acorns') else
            'They carried them home together.')
    closing(s, s.pick(('enough is enough', 'who wants everything may lose everything', 'it is good to share')))


def trading(s):
    first, second, third = s.things(3)
    s.known.update(o1=first, o2=second, o3=third)
    s.known['n1'], s.known['n2'] = s.neighbour(), s.neighbour()
    s.known['q'] = s.place(s.known['p'])
    s.tell('{h~} [wished for|dreamed of|wanted] a {o3}, but all {h.he} had was a {o1}.')
    one_day(s)
    s.tell('There {h} met {n1} {n1.trade}[|, who looked {sad}]. "[I need|I am looking for|If only I had] a {o1.n}," ' +
           SAID + ' {n1}.')
    s.tell('"You can have mine," ' + ANSWERED + ' {h} and gave {n1.him} the {o1}.')
    s.tell('"[Thank you|How kind]! Take this {o2} for it," ' + SAID + ' {n1}. [So now {h} had a {o2}|'
                                                                      '{h} took the {o2.n} and went on].')
    s.paragraph()
    s.tell('[Then {h} went|After that {h} {h.went}] {q.to}. {q.sight}. There stood {n2} {n2.trade}.')
    s.tell('"What a [fine|nice|lovely] {o2.n}! [I have wanted one for years|That is just what I need]. Will you '
           '[trade|swap] it for my {o3.n}?" ' + ASKED + ' {n2}.')
    s.tell('{h} could [hardly|not] believe it. "Yes, [gladly|please|with pleasure]!" {h.he} ' + CRIED + '.')
    s.tell('{h} gave {n2} the {o2.n} and got a {o3}. [It was just what {h.he} had wished for|'
           'Now {h.his} wish had come true].')
    closing(s, s.pick(('kindness comes back', 'what you do not need may make another happy',
                       'a fair trade makes two people happy')))


def finder(s):
    s.known['o'] = s.thing(lex.TREASURES[:18] + lex.WEARABLES)
    s.known['n1'], s.known['n2'], s.known['n3'] = s.neighbour(), s.neighbour(), s.neighbour()
    one_day(s)
    s.tell('There, [in the grass|on the ground|under a bench|between the stones], {h~} found a {o}.')
    s.tell('"[Somebody must have lost it|Somebody will miss this {o.n}]," [thought|said] {h}.')
    s.maybe(0.6, '{h~} wanted to keep it, but [that would not be right|it was not hers].'
            if s.known['h']['he'] == 'she' else '{h~} wanted to keep it, but [that would not be right|it was not his].')
    s.tell('First {h} asked {n1} {n1.trade}. "[No, it is not mine|I still have mine|That is not mine]," ' + ANSWERED +
           ' {n1}.')
    if s.chance(0.7):
        s.tell('Then {h.he} asked {n2} {n2.trade}. "[No|I am sorry, no], [but ask {n3}|'
               '{n3} was looking for something today]," ' + ANSWERED + ' {n2}.')
    s.paragraph()
    s.tell('[At last {h.he}|{h}] {h.went} to {n3} {n3.trade}, who was [looking under every bush|searching everywhere|'
           'very {sad}].')
    s.tell('"Is this {o.n} [yours|perhaps yours]?" ' + ASKED + ' {h}.')
    s.tell('"[My {o.n}|Oh, my {o.n}]! [My grandma gave it to me|I have had it since I was small|'
           'I thought it was gone for ever]. Thank you, {h}!" ' + CRIED + ' {n3}.')
    s.tell('{n3} gave {h} [a big hug|a {food}|some {n3.ware}] [as a thank-you|and smiled].', food=s.pick(lex.FOODS))
    closing(s, s.pick(('it feels good to be honest', 'what is found should be given back',
                       'honesty is its own reward')))


def delivery(s):
    s.known['food'] = s.pick(lex.FOODS)
    s.known['o'] = s.thing(lex.HANDY)
    s.known['cargo'] = s.phrase('a [fresh|warm|sweet] {food}' if s.chance(0.6) else 'a {o}')
    s.known['what'] = s.known['food'] if s.known['food'] in s.known['cargo'] else s.known['o']['n']
    (s.known['ob1'], s.known['do1']), (s.known['ob2'], s.known['do2']) = s.some(lex.OBSTACLES, 2)
    giver, receiver = s.some(lex.FAMILY[:4], 2)
    s.known['m'] = s.person(f'{s.known["h"]["his"]} {giver[0]}', giver[1], '', '', '')
    s.known['g'] = s.person(f'{s.known["h"]["his"]} {receiver[0]}', receiver[1], '', '', '')
    s.paragraph()
    s.tell('One {sunny} {time}, {m} said, "{h}, please [bring|take] {cargo} to your {r}, who lives near {p}."',
           r=receiver[0])
    s.tell('{h} [took|packed] the {what} and [set out|went off|started at once].')
    s.tell('[Soon|First|After a while] {h.he} came to {ob1}. {h} [thought for a moment|was not afraid] and {do1}.')
    s.maybe(0.75, '[Then|A little later|Farther on] there was {ob2}. [This was harder|{h} stopped|{h} sighed]. But '
                  '{h.he} {do2}.')
    if s.chance(0.5):
        friend(s)
        s.tell('[On the way|Near {p}] {h} met {f}. "[Come and play|Stay and play with me]!" ' + CRIED + ' {f}.')
        s.tell('"[Later|Not now]. First I must bring the {what} to my {r}," ' + ANSWERED + ' {h}.')
    s.paragraph()
    s.tell('At last {h} knocked at the door. {g} opened it and [was so pleased|smiled|laughed with joy].')
    s.tell('"[Thank you|You came all this way|What a surprise], {h}! [Come in|Sit down and rest]," ' + SAID + ' {g}. ' +
           ('They ate the {what} together.' if s.known['what'] == s.known['food']
            else 'They drank [tea|warm milk|cocoa] together.'))
    closing(s, s.pick(('one step after another leads to the end', 'a promise should be kept',
                       'no way is too long for somebody you love')))


def sick_friend(s):
    friend(s)
    one_day(s)
    s.tell('{h} waited for {f}, but {f} did not come. "[That is strange|Something is wrong]," [thought|said] {h}.')
    s.tell('So {h} {h.went} to the [house|home] of {f}. {f} lay in bed [with a cold|with a fever|and sneezed]. "I '
           '[am sick|feel bad]. I cannot come and play," ' + SAID + ' {f} [sadly|in a small voice].')
    s.known['o'] = s.thing(None, s.pick(('blanket', 'scarf', 'pillow', 'book', 'picture')))
    s.known['dish'] = s.pick(('soup', 'tea with honey', 'warm milk', 'porridge', 'apple juice', 'noodle soup'))
    s.tell('"[Then I will help you|I will be back soon|Wait here]," ' + SAID + ' {h}.')
    s.paragraph()
    s.tell('{h} [ran|went] home and came back with {dish} and a {o}.')
    eaten = 'soup' in s.known['dish'] or s.known['dish'] == 'porridge'
    s.tell('{f} %s the {dish} slowly. ' % ('ate' if eaten else 'drank')
           + {'book': 'Then {h} read from the book.', 'picture': 'Then they hung the picture over the bed.'}.get(
               s.known['o']['n'], 'The {o.n} [kept {f.him} warm|was soft and warm].'))
    s.maybe(0.6, '{h~} told [funny stories|a story about a dragon|a joke], and {f} [laughed|had to smile].')
    s.tell('[A few days later|After three days|The next week] {f} was well again. '
           '[They ran {p.to} together|They played {g} {p.in}]. "[You made me well|You are the best friend]," ' + SAID +
           ' {f}.', g=s.pick(lex.GAMES))
    closing(s, s.pick(('a friend is the best medicine', 'being there is what counts', 'kindness makes people well')),
            days=True)


def hide_and_seek(s):
    friend(s), friend(s, 'k')
    first, second = s.some(lex.HIDING, 2)
    s.known.update(a=first, b=second)
    s.tell('{h~} had two friends, {f} and {k}.')
    one_day(s)
    s.tell('"Let us play hide and seek!" ' + CRIED + ' {f}. {h} [closed {h.his} eyes and|had to seek and] counted to '
                                                     '[ten|twenty|fifty].')
    s.tell('{f} hid {a}. {k} hid {b}.')
    s.tell('"[Ready or not, here I come|I am coming]!" ' + CRIED + ' {h}.')
    s.paragraph()
    swap = s.chance(0.5)
    one, two, w1, w2 = ('{f}', '{k}', '{a}', '{b}') if not swap else ('{k}', '{f}', '{b}', '{a}')
    s.tell('{h} [looked everywhere|searched for a while]. [A foot was sticking out|There was a giggle|'
           'Something moved]. ' + f'There, {w1}, was {one}!')
    s.tell(f'But where was {two}? ' + '[{h} looked and looked|They called|It was very quiet].')
    s.tell(f'[At last|Then] {{h}} looked {w2}. There was {two}, [fast asleep|with a big grin|covered with dust]!')
    s.tell('They [all laughed|laughed and laughed]. "[Now it is my turn|Next time I will seek]," ' + SAID + f' {one}.')
    closing(s, s.pick(('games are best with friends', 'patience finds everything')))


def promise(s):
    friend(s)
    s.known['o'] = s.thing(lex.TOYS + lex.HANDY + lex.WEARABLES)
    s.known['q'] = s.place(s.known['p'])
    s.tell('{h~} borrowed a {o} from {f}[|, a good friend]. "[Please bring it back|I need it back] '
           '[tomorrow|on Sunday|by tomorrow]," ' + SAID + ' {f}.')
    s.tell('"I promise," ' + ANSWERED + ' {h}.')
    one_day(s)
    s.tell('{h~} used the {o.n} [all {time}|for hours] and [forgot the time|was happy with it]. '
           '[In the evening {h.he} left it|Then {h.he} left it] {p.in} and went home.')
    s.paragraph()
    s.tell('The next day {f} came. "Where is my {o.n}?" ' + ASKED + ' {f}.')
    s.tell('{h} [turned red|was shocked|jumped up]. "[I forgot it|I left it] {p.in}! [Come with me|I will get it]!" '
           '{h.he} ' + CRIED + '.')
    s.tell('They ran {p.to}. The {o.n} [lay in the wet grass|was covered with leaves|was full of mud].')
    s.tell('{h} [cleaned it|wiped it dry|washed it] until it [looked like new|was clean] and gave it back to {f}. "I '
           'am sorry. [I will be more careful|It will not happen again]," {h.he} said.')
    s.tell('{f} [smiled|nodded]. "[It is all right|You kept your promise after all]," ' + SAID + ' {f}.')
    closing(s, s.pick(('borrowed things must be looked after', 'a promise should be kept')), days=True)


PLOTS = [lost_thing, sharing, rescue, gift, fear, seed, spoiled_plan, new_friend, cooking, race, broken, lost_way,
         building, night_noise, learning, greedy, trading, finder, delivery, sick_friend, hide_and_seek, promise]
