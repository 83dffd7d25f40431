"""The words of the stories: who there is, what they have, where they go, how it looks there.

Data only. A place is (name, "in the ..." , "to the ...", what one sees there); an animal is (kind, its home, how it
moves). Everything is plain English for small children and plain ASCII.
"""


def words(text):
    return [word.strip() for word in text.split(',')]


GIRLS = words('Anna, Bella, Cora, Daisy, Ella, Fiona, Grace, Hazel, Ivy, June, Kate, Lily, Mia, Nora, Olive, Penny, '
              'Rosa, Sara, Tess, Uma, Vera, Wendy, Zoe, Amy, Beth, Clara, Dora, Emma, Flora, Greta, Holly, Iris, Jane, '
              'Lucy, Maya, Nina, Pearl, Ruby, Sophie, Tilda, Alma, Edith, Freya, Mabel, Nell, Polly, Stella, Willa')
BOYS = words('Adam, Ben, Carl, Dan, Eli, Finn, George, Hugo, Ian, Jack, Karl, Leo, Max, Ned, Otto, Paul, Ray, Sam, '
             'Tom, Victor, Will, Zack, Alex, Bruno, Colin, David, Emil, Felix, Henry, Ivan, Jonas, Luke, Milo, Noah, '
             'Oscar, Peter, Robin, Simon, Theo, Walter, Arthur, Dylan, Frank, Harry, Jasper, Louis, Martin, Toby')
CREATURES = words('Pip, Dot, Fern, Moss, Clover, Button, Hazelnut, Acorn, Pebble, Biscuit, Pumpkin, Nutmeg, Sunny, '
                  'Misty, Bramble, Thistle, Poppy, Willow, Berry, Pepper, Ginger, Cocoa, Maple, Honey, Sandy, Rusty, '
                  'Bubbles, Snowy, Tiny, Whisker, Velvet, Twig, Marble, Domino, Patch, Fudge, Puddle, Sprout, Olly, '
                  'Bibi, Momo, Kiki, Lulu, Nunu, Toto, Fifi, Coco, Zuzu')
SURNAMES = words('Bell, Brown, Green, Hill, Lane, Marsh, Moon, Penn, Reed, Rose, Stone, Wood, Frost, Hart, Cook, Field')

# kind, home, how it goes
ANIMALS = [
    ('fox', 'den', 'trotted'), ('rabbit', 'burrow', 'hopped'), ('bear', 'cave', 'padded'),
    ('mouse', 'hole', 'scurried'), ('hedgehog', 'nest of leaves', 'shuffled'), ('squirrel', 'tree', 'scampered'),
    ('duck', 'nest by the pond', 'waddled'), ('frog', 'pond', 'hopped'), ('badger', 'den', 'shuffled'),
    ('otter', 'house by the river', 'ran'), ('mole', 'tunnel', 'shuffled'), ('goat', 'barn', 'trotted'),
    ('lamb', 'barn', 'skipped'), ('piglet', 'sty', 'trotted'), ('kitten', 'basket', 'padded'),
    ('puppy', 'kennel', 'ran'), ('turtle', 'house under the roots', 'crept'), ('beaver', 'lodge', 'waddled'),
    ('fawn', 'bed of ferns', 'stepped'), ('gosling', 'nest in the reeds', 'waddled'),
    ('raccoon', 'hollow log', 'padded'),
    ('chipmunk', 'hole under the oak', 'scampered'), ('pony', 'stable', 'trotted'),
    ('hamster', 'little house', 'scurried'),
]
SMALL_ANIMALS = words('bird, kitten, puppy, duckling, baby rabbit, lamb, snail, hedgehog, butterfly, ladybug, baby '
                      'owl, '
                      'turtle, mouse, bee, squirrel, little frog')
WISE = [('old owl', 'she'), ('old owl', 'he'), ('old turtle', 'he'), ('grey goose', 'she'), ('old horse', 'he'),
        ('wise crow', 'she'), ('old goat', 'he'), ('big toad', 'he'), ('white cat', 'she'), ('old donkey', 'he')]
FAMILY = [('mother', 'she'), ('father', 'he'), ('grandma', 'she'), ('grandpa', 'he'), ('aunt', 'she'), ('uncle', 'he'),
          ('big sister', 'she'), ('big brother', 'he')]
TRADES = [('the baker', 'bread'), ('the gardener', 'flowers'), ('the farmer', 'eggs'), ('the teacher', 'books'),
          ('the carpenter', 'tables'), ('the shoemaker', 'shoes'), ('the miller', 'flour'), ('the painter', 'pictures'),
          ('the tailor', 'coats'), ('the fisherman', 'boats'), ('the postman', 'letters'), ('the clockmaker', 'clocks')]

GOOD_TRAITS = words('kind, brave, gentle, clever, cheerful, curious, patient, helpful, friendly, careful, honest, '
                    'lively')
WEAK_TRAITS = words('shy, quiet, hasty, stubborn, dreamy, restless, forgetful, messy, proud, timid')
LOOKS = words('little, small, young, tiny, merry, lively, bright')

COLOURS = words('red, blue, green, yellow, white, black, brown, orange, purple, pink, golden, silver, grey')
TOYS = words('ball, kite, drum, doll, teddy bear, toy boat, toy train, top, puzzle, wagon, hoop, whistle, rope, '
             'bucket, '
             'paper plane, toy horse, jump rope, scooter, yo-yo, toy duck')
TREASURES = words('button, shell, feather, marble, ribbon, bell, key, stone, coin, ring, bead, pine cone, star, brush, '
                  'spoon, cup, box, whistle, locket, acorn')
WEARABLES = words('hat, scarf, coat, mitten, boot, cap, sock, apron, belt, bow, shoe, glove')
HANDY = words('basket, lantern, umbrella, blanket, book, pencil, broom, pot, pillow, bag, watering can, ladder, jar, '
              'rake, cushion, mirror, clock, lamp')
MATERIALS = words('wooden, shiny, soft, old, new, tiny, round, striped, spotted, painted, smooth, pretty')
FOODS = words('apple, pear, plum, peach, carrot, cookie, muffin, pie, bun, sandwich, pancake, cake, tomato, turnip, '
              'pumpkin, melon, cherry tart, slice of bread, piece of cheese, jam roll')
BERRIES = words('apples, pears, plums, cherries, nuts, blueberries, strawberries, acorns, mushrooms, carrots, shells, '
                'flowers, pine cones, blackberries, grapes, chestnuts')
DISHES = [('soup', 'carrots', 'salt'), ('soup', 'potatoes', 'an onion'), ('bread', 'flour', 'yeast'),
          ('apple pie', 'apples', 'sugar'), ('pancakes', 'flour', 'eggs'), ('porridge', 'oats', 'milk'),
          ('jam', 'strawberries', 'sugar'), ('cake', 'flour', 'eggs'), ('cookies', 'flour', 'butter'),
          ('salad', 'tomatoes', 'salt'), ('noodles', 'flour', 'butter'), ('plum cake', 'plums', 'honey'),
          ('stew', 'beans', 'an onion'), ('muffins', 'blueberries', 'milk'), ('pudding', 'sugar', 'milk'),
          ('lemonade', 'lemons', 'honey')]
FLOWERS = words('rose, tulip, daisy, sunflower, lily, poppy, violet, bluebell')
SEEDS = [('bean', 'bean plant', 'beans'), ('pumpkin seed', 'pumpkin plant', 'a round pumpkin'),
         ('sunflower seed', 'sunflower', 'a big yellow flower'), ('apple seed', 'little apple tree', 'green leaves'),
         ('pea', 'pea plant', 'sweet peas'), ('tomato seed', 'tomato plant', 'red tomatoes'),
         ('tulip bulb', 'tulip', 'a red flower'), ('carrot seed', 'carrot plant', 'a fat orange carrot'),
         ('melon seed', 'melon plant', 'a sweet melon'), ('acorn', 'little oak', 'bright leaves')]

# name, in, to, what one sees there
OUTDOORS = [
    ('the garden', 'in', 'to', ['bees hummed over the flowers', 'the roses smelled sweet',
                                'a robin sang on the fence']),
    ('the park', 'in', 'to', ['children played on the swings', 'the grass was soft and green',
                              'ducks swam on the pond']),
    ('the forest', 'in', 'into', ['the trees were tall and dark', 'the leaves rustled',
                                  'a woodpecker knocked on a tree']),
    ('the meadow', 'in', 'to', ['the grass was full of daisies', 'butterflies danced over the grass',
                                'crickets chirped']),
    ('the beach', 'on', 'to', ['the waves rolled over the sand', 'gulls cried in the sky', 'the sand was warm']),
    ('the river', 'by', 'to', ['the water ran fast', 'fish jumped in the water', 'the stones were smooth and wet']),
    ('the pond', 'by', 'to', ['frogs sat on the lily pads', 'the water was still', 'reeds moved in the wind']),
    ('the hill', 'on', 'up', ['one could see far away', 'the wind was strong', 'sheep ate the grass']),
    ('the farm', 'on', 'to', ['hens ran about in the yard', 'a cow looked over the gate', 'the hay smelled good']),
    ('the market', 'at', 'to', ['the tables were full of fruit', 'people talked and laughed', 'a man sold warm bread']),
    ('the old bridge', 'near', 'to', ['the water splashed below', 'moss grew on the stones',
                                      'a heron stood in the water']),
    ('the village', 'in', 'to', ['smoke rose from the roofs', 'a bell rang', 'a dog slept in the sun']),
    ('the orchard', 'in', 'to', ['the trees were full of fruit', 'birds sang in the trees',
                                 'a ladder leaned on a tree']),
    ('the lake', 'by', 'to', ['a little boat lay on the shore', 'the water was blue', 'swans swam by']),
    ('the field', 'in', 'to', ['the corn was high', 'a hare ran by', 'poppies grew along the path']),
    ('the playground', 'at', 'to', ['the slide was shiny', 'the swings moved in the wind', 'children ran and shouted']),
    ('the mill', 'at', 'to', ['the big wheel turned', 'white flour lay on the steps', 'the stream ran by']),
    ('the valley', 'in', 'into', ['a stream ran over the stones', 'the hills were green', 'flowers grew everywhere']),
]
HIDING = words('under the bed, behind the door, in the big basket, under the table, on the shelf, behind the curtain, '
               'in the wooden box, under the bench, behind the tall tree, in the long grass, next to the gate, '
               'under a bush, behind the shed, in the hay, under the old chair, by the well, in the kitchen, '
               'on the stairs, under the blanket, beside the stove, in the wagon, between two stones')

SUNNY = words('sunny, bright, warm, clear, fine')
STORMY = words('rainy, windy, stormy, wet, grey')
SEASONS = words('spring, summer, autumn, winter')
TIMES = words('morning, afternoon, evening')
GLAD = words('happy, glad, proud, cheerful, delighted, pleased')
SAD = words('sad, unhappy, upset, worried, sorry')
GAMES = words('tag, hide and seek, catch, leapfrog, a clapping game, pirates, a guessing game, explorers, a jumping '
              'game, '
              'king of the hill, follow the leader, knights')
SKILLS = [('swim', 'in the pond', 'sank at once', 'kicked with both legs'),
          ('ride a bike', 'on the path', 'fell to the side', 'looked straight ahead'),
          ('whistle', 'on the porch', 'made only a puff of air', 'made a small round mouth'),
          ('jump over the stream', 'at the stream', 'landed in the water', 'took a long run'),
          ('tie a bow', 'on the steps', 'made only a knot', 'made two loops'),
          ('climb the old tree', 'in the garden', 'slid down again', 'held on with both arms'),
          ('juggle', 'in the yard', 'dropped everything', 'looked up and not down'),
          ('play the flute', 'in the kitchen', 'made a terrible squeak', 'blew very gently'),
          ('skate', 'on the ice', 'slipped and sat down hard', 'bent both knees'),
          ('dance', 'in the barn', 'stepped the wrong way', 'counted to three again and again'),
          ('draw a horse', 'at the table', 'drew something like a potato', 'looked closely at a real horse'),
          ('catch a ball', 'in the field', 'missed it', 'watched the ball all the way'),
          ('sing the long song', 'at school', 'forgot the words', 'learned one line each day'),
          ('row a boat', 'on the lake', 'went round in circles', 'pulled both oars together')]
FEARS = [('the dark', 'The room was as black as ink', 'the dark is only the day asleep', 'looked at the stars'),
         ('thunder', 'The thunder rolled over the roof', 'thunder is only a big noise', 'counted from one to ten'),
         ('deep water', 'The water looked deep and cold', 'the water will carry you if you are calm',
          'breathed slowly'),
         ('the big dog', 'The big dog barked behind the fence', 'he barks because he is lonely', 'held out a hand'),
         ('high places', 'The ground seemed very far away', 'you need not look down', 'looked only at the next step'),
         ('the cellar', 'The cellar was cold and full of shadows', 'shadows cannot touch you', 'hummed a little song'),
         ('the wind', 'The wind howled around the house', 'the wind only wants to sing', 'sang along with it'),
         ('spiders', 'A spider sat in the corner', 'a spider is more afraid of you', 'watched it spin its web'),
         ('the new school', 'The school was big and loud', 'everybody is new on the first day',
          'said hello to one child')]
NOISES = [('a scratching noise', 'a branch that scratched at the window', 'branch'),
          ('a soft tapping', 'the rain that dripped into a bucket', 'rain'),
          ('a strange howl', 'the wind that blew over an empty bottle', 'wind'),
          ('a loud thump', 'a cat that had jumped from the shelf', 'cat'),
          ('a little squeak', 'a mouse that was eating a crumb', 'mouse'),
          ('a slow creak', 'the old gate that swung in the wind', 'gate'),
          ('a deep hoot', 'an owl that sat on the roof', 'owl'),
          ('a quiet rustle', 'a hedgehog that was looking for snails', 'hedgehog'),
          ('a low rumble', 'a dog that was snoring under the stairs', 'dog'),
          ('a strange clatter', 'a raccoon that was playing with a pot', 'raccoon')]
# what is built, of what first, why that fails, of what then, how it goes at last
BUILDS = [('a kite', 'heavy wood', 'was too heavy to fly', 'thin paper', 'rose high into the sky'),
          ('a boat', 'paper', 'became wet and sank', 'wood', 'floated all the way across'),
          ('a birdhouse', 'cardboard', 'fell apart in the rain', 'strong boards', 'stayed dry, and a bird moved in'),
          ('a bridge', 'thin twigs', 'broke in the middle', 'a thick log', 'held everyone who walked over it'),
          ('a tower', 'wet sand', 'fell down in the sun', 'flat stones', 'stood tall and straight'),
          ('a swing', 'an old string', 'snapped at once', 'a strong rope', 'swung high and safe'),
          ('a little house', 'straw', 'blew away in the wind', 'bricks', 'stood firm in the wind'),
          ('a raft', 'stones', 'went straight to the bottom', 'dry logs', 'floated like a duck'),
          ('a wagon', 'square wheels', 'would not roll', 'round wheels', 'rolled down the path'),
          ('a snowman', 'dry leaves', 'would not hold together', 'good wet snow', 'stood in the yard all winter'),
          ('a tent', 'big leaves', 'let the rain in', 'an old blanket', 'kept everyone dry'),
          ('a drum', 'a soft pillow', 'made no sound', 'an empty pot', 'went boom, boom, boom')]
GIFTS = [('a card', 'drew', 'paper and paint'), ('a scarf', 'knitted', 'soft wool'),
         ('a cake', 'baked', 'flour and eggs'),
         ('a necklace', 'made', 'beads and string'), ('a crown', 'wove', 'flowers'),
         ('a picture', 'painted', 'bright paint'),
         ('a wooden bird', 'carved', 'a piece of wood'), ('a song', 'wrote', 'a pencil and paper'),
         ('a bookmark', 'made', 'ribbon and paper'), ('a pillow', 'sewed', 'cloth and feathers'),
         ('a lantern', 'made', 'paper and glue'), ('a pot of jam', 'cooked', 'berries and sugar')]
TROUBLES = [('was stuck in the mud', 'pulled gently', 'came free with a plop'),
            ('was caught in a net', 'untied the knots one by one', 'was free'),
            ('had fallen out of its nest', 'made a soft bed of leaves', 'was warm and safe again'),
            ('had hurt its leg', 'tied a clean cloth around the leg', 'could stand again'),
            ('was lost', 'followed its tracks back', 'saw its family again'),
            ('was too weak to move', 'brought water in a leaf', 'drank and felt strong again'),
            ('sat on a stone in the middle of the stream', 'laid a long branch over the water', 'walked across'),
            ('was caught in the thorns', 'bent the thorns aside', 'crept out'),
            ('had fallen into a bucket', 'tipped the bucket over', 'rolled out'),
            ('was shivering in the cold', 'wrapped it in a warm scarf', 'stopped shivering')]
OBSTACLES = [('a wide puddle', 'laid a board over it and walked across'), ('a fallen tree', 'climbed over it'),
             ('a locked gate', 'went around it through the field'), ('a steep hill', 'climbed it step by step'),
             ('a stream', 'jumped from stone to stone'), ('a flock of geese', 'waited until they had passed'),
             ('thick fog', 'followed the fence'), ('a muddy path', 'walked on the grass beside it'),
             ('a sleeping dog', 'tiptoed past it'), ('a strong wind', 'walked bent over')]
BREAKABLES = words('vase, plate, cup, window, lamp, bowl, mirror, jug, teapot, picture frame, flower pot, clock')
INDOOR_FUN = ['built a fort of pillows', 'had a picnic on the floor', 'put on a play', 'told stories by the fire',
              'painted pictures of the sun', 'baked cookies', 'made a band with pots and spoons',
              'sailed a boat made of chairs', 'made shadow animals on the wall', 'played cards',
              'danced around the table', 'folded paper birds', 'read a book about dragons', 'made puppets from socks']
PLANS = [('a picnic', 'eat outside'), ('a swim', 'swim'), ('a long walk', 'walk to the hill'),
         ('a ball game', 'play ball'),
         ('a boat trip', 'go out in the boat'), ('a bike ride', 'ride far away'),
         ('a garden party', 'dance in the garden'),
         ('a day at the beach', 'dig in the sand'), ('a race', 'run in the meadow'),
         ('a trip to the zoo', 'see the lions')]
