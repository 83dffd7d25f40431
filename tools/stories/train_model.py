#!/usr/bin/env python3
"""Trains the bundled model: writes the stories, learns a vocabulary, trains a small llama, writes it as GGUF in Q8_0.

    tools/stories/train_model.py --out models/stories.gguf --minutes 4     one GPU, PyTorch; no network
    tools/stories/train_model.py --smoke --out /tmp/smoke.gguf             everything, small, on the CPU
    tools/stories/train_model.py --untrained --out /tmp/untrained.gguf     without PyTorch: random weights

The learning rate follows the clock, not the steps: warm-up, then a cosine that is at its end when the minutes are.
The same model is written halfway, so that a run that is cut off leaves something; SIGTERM ends the training early and
writes what there is. Losses are of stories that were written from other seeds than those trained on, each alone in
its context: mean nats per token, and bits per byte of text.
"""
import argparse
import array
import collections
import contextlib
import hashlib
import importlib.util
import math
import multiprocessing
import os
import random
import signal
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]

import bpe  # noqa: E402
import gguf_writer as gguf  # noqa: E402
import make_stories  # noqa: E402

STORIES_PER_CHUNK = 500
RMS_EPSILON = 1e-5
ROPE_BASE = 10000.0
BEGAN = time.monotonic()


def main():
    args = arguments()
    if not args.untrained and importlib.util.find_spec('torch') is None:
        sys.exit('PyTorch is not installed: training needs it (--untrained does without)')
    os.makedirs(os.path.dirname(os.path.abspath(args.out)), exist_ok=True)
    data = write_data(args)
    args.vocab = len(data.encoder.merges) + 257
    weights, report = untrained(args, data) if args.untrained else trained(args, data)
    write_model(args, data.encoder, weights)
    for line in report:
        say(line)
    say(f'{args.out}: {os.path.getsize(args.out)} bytes, {parameters(args)} parameters')


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--out', required=True)
    parser.add_argument('--minutes', type=float, default=4, help='of training; writing text and file come on top')
    parser.add_argument('--stories', type=int, default=1200000, help='to train on, at most')
    parser.add_argument('--data-seconds', type=float, default=100, help='the most that writing the stories may take')
    parser.add_argument('--held-out', type=int, default=1000, help='stories')
    parser.add_argument('--vocab', type=int, default=2048)
    parser.add_argument('--dim', type=int, default=256)
    parser.add_argument('--layers', type=int, default=6)
    parser.add_argument('--heads', type=int, default=8)
    parser.add_argument('--kv-heads', type=int, default=2)
    parser.add_argument('--ff', type=int, default=448)
    parser.add_argument('--ctx', type=int, default=1024)
    parser.add_argument('--batch', type=int, default=64, help='rows of --ctx tokens')
    parser.add_argument('--rate', type=float, default=2e-3, help='the highest learning rate')
    parser.add_argument('--decay', type=float, default=0.1, help='of weights')
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--workers', type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument('--compile', action='store_true', help='torch.compile; takes a minute and a C compiler')
    parser.add_argument('--smoke', action='store_true', help='small, on the CPU, in less than a minute')
    parser.add_argument('--untrained', action='store_true', help='random weights; needs no PyTorch')
    args = parser.parse_args()
    if args.smoke:
        args.minutes, args.stories, args.held_out, args.vocab = 0.3, 2000, 20, 512
        args.dim, args.layers, args.heads, args.kv_heads, args.ff, args.ctx, args.batch = 64, 2, 2, 1, 96, 256, 4
    if args.untrained:
        args.stories, args.held_out = min(args.stories, 2000), min(args.held_out, 20)
    if args.dim % args.heads or args.heads % args.kv_heads or args.dim % 32 or args.ff % 32:
        parser.error('heads divide dim, kv-heads divide heads, dim and ff are multiples of 32')
    args.head = args.dim // args.heads
    return args


def say(line):
    print(f'[{time.monotonic() - BEGAN:6.1f} s] {line}', flush=True)


# ---- text ----

class Data:
    """encoder; train: array of int16, each story led by <|endoftext|>, one more at the end; held_out: (ids, bytes)"""


ENCODER = None  # of a worker process


def start_worker(merges):
    global ENCODER
    ENCODER = bpe.Encoder(merges)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def chunk_of_stories(chunk):
    split, first, count = chunk
    return [make_stories.story(split, number) for number in range(first, first + count)]


def counts_of_chunk(chunk):
    return bpe.count_pieces(chunk_of_stories(chunk))


def ids_of_chunk(chunk):
    ids, digests, size = array.array('h'), [], 0
    for text in chunk_of_stories(chunk):
        ids.append(bpe.END)
        ids.extend(ENCODER.encode(text))
        digests.append(digest(text))
        size += len(text)
    return ids.tobytes(), digests, size


def digest(text):
    return hashlib.blake2b(text.encode(), digest_size=8).digest()


def write_data(args):
    chunks = [('train', first, min(STORIES_PER_CHUNK, args.stories - first))
              for first in range(0, args.stories, STORIES_PER_CHUNK)]
    data, counts = Data(), collections.Counter()
    with multiprocessing.get_context('fork').Pool(args.workers) as pool:
        for some in pool.imap_unordered(counts_of_chunk, chunks[:64]):
            counts += some
    say(f'{len(counts)} different pieces in the first {min(args.stories, 64 * STORIES_PER_CHUNK)} stories')
    data.encoder = bpe.Encoder(bpe.train(counts, args.vocab))
    say(f'vocabulary: {len(data.encoder.merges) + 257} tokens')

    held = [make_stories.story('held-out', number) for number in range(args.held_out)]
    data.held_out = [(data.encoder.encode(text), len(text)) for text in held]
    for text, (ids, _) in zip(held, data.held_out):
        if data.encoder.decode(ids) != text:
            sys.exit('the vocabulary does not give back a story')
    seen, ids, size, ended = set(), bytearray(), 0, time.monotonic() + args.data_seconds
    with multiprocessing.get_context('fork').Pool(args.workers, start_worker, (data.encoder.merges,)) as pool:
        for done, (some, digests, bytes_) in enumerate(pool.imap(ids_of_chunk, chunks), 1):
            ids += some
            seen.update(digests)
            size += bytes_
            if done % 200 == 0:
                say(f'{done * STORIES_PER_CHUNK} stories written')
            if time.monotonic() > ended:
                say('no more time for stories: training with these')
                break
        pool.terminate()
    shared = sum(digest(text) in seen for text in held)
    if shared:
        sys.exit(f'{shared} held-out stories are among those to train on')
    ids += array.array('h', [bpe.END]).tobytes()
    data.train, data.stories = ids, len(seen)
    say(f'{len(seen)} different stories, {size} bytes, {len(ids) // 2} tokens '
        f'({size / (len(ids) // 2):.2f} bytes each); {len(held)} held out, none of them trained on')
    return data


# ---- the file ----

def shapes(args):
    """(name, row-major shape); matrices have two sizes, norms one."""
    keys = args.kv_heads * args.head
    yield 'token_embd.weight', (args.vocab, args.dim)
    for layer in range(args.layers):
        prefix = f'blk.{layer}.'
        yield prefix + 'attn_norm.weight', (args.dim,)
        yield prefix + 'attn_q.weight', (args.dim, args.dim)
        yield prefix + 'attn_k.weight', (keys, args.dim)
        yield prefix + 'attn_v.weight', (keys, args.dim)
        yield prefix + 'attn_output.weight', (args.dim, args.dim)
        yield prefix + 'ffn_norm.weight', (args.dim,)
        yield prefix + 'ffn_gate.weight', (args.ff, args.dim)
        yield prefix + 'ffn_up.weight', (args.ff, args.dim)
        yield prefix + 'ffn_down.weight', (args.dim, args.ff)
    yield 'output_norm.weight', (args.dim,)


def parameters(args):
    return sum(gguf.elements_of(shape) for _, shape in shapes(args))


def kind_of(shape):
    return 'q8_0' if len(shape) == 2 else 'f32'


def encoded(values, shape):
    """A list of numbers as the file has them."""
    return gguf.quantize_q8_0(values) if kind_of(shape) == 'q8_0' else array.array('f', values).tobytes()


def keys(args, encoder):
    tokens, merges = encoder.spelt()
    yield 'general.architecture', gguf.string('llama')
    yield 'general.name', gguf.string('ROCmForge Stories')
    yield 'general.description', gguf.string('Tells simple English stories. Trained on text that the generator of '
                                             'ROCmForge (tools/stories) wrote, and on nothing else.')
    yield 'general.license', gguf.string('the license of ROCmForge, see LICENSE')
    yield 'general.file_type', gguf.u32(7)  # most tensors are Q8_0
    yield 'llama.context_length', gguf.u32(args.ctx)
    yield 'llama.embedding_length', gguf.u32(args.dim)
    yield 'llama.block_count', gguf.u32(args.layers)
    yield 'llama.feed_forward_length', gguf.u32(args.ff)
    yield 'llama.attention.head_count', gguf.u32(args.heads)
    yield 'llama.attention.head_count_kv', gguf.u32(args.kv_heads)
    yield 'llama.attention.key_length', gguf.u32(args.head)
    yield 'llama.attention.value_length', gguf.u32(args.head)
    yield 'llama.attention.layer_norm_rms_epsilon', gguf.f32(RMS_EPSILON)
    yield 'llama.rope.dimension_count', gguf.u32(args.head)
    yield 'llama.rope.freq_base', gguf.f32(ROPE_BASE)
    yield 'llama.vocab_size', gguf.u32(args.vocab)
    yield 'tokenizer.ggml.model', gguf.string('gpt2')
    yield 'tokenizer.ggml.pre', gguf.string('gpt-2')
    yield 'tokenizer.ggml.tokens', gguf.strings(tokens)
    yield 'tokenizer.ggml.token_type', gguf.i32s([3] + [1] * (len(tokens) - 1))  # control, normal
    yield 'tokenizer.ggml.merges', gguf.strings(merges)
    yield 'tokenizer.ggml.bos_token_id', gguf.u32(bpe.END)
    yield 'tokenizer.ggml.eos_token_id', gguf.u32(bpe.END)
    yield 'tokenizer.ggml.add_bos_token', gguf.boolean(True)
    yield 'tokenizer.ggml.add_eos_token', gguf.boolean(False)


def write_model(args, encoder, weights):
    """weights: name to bytes as the file has them."""
    tensors = [(name, shape, kind_of(shape)) for name, shape in shapes(args)]
    with gguf.new_file(args.out) as file:
        gguf.write_head(file, keys(args, encoder), tensors)
        for name, shape, kind in tensors:
            size = gguf.bytes_of(shape, kind)
            if len(weights[name]) != size:
                raise ValueError(f'{name}: {len(weights[name])} bytes, not {size}')
            gguf.write_all(file, weights[name] + bytes(gguf.padding(size)))


def untrained(args, data):
    draw = random.Random(args.seed)
    weights = {}
    for name, shape in shapes(args):
        count = gguf.elements_of(shape)
        deviation = shape[-1] ** -0.5
        values = [draw.uniform(-1.7, 1.7) * deviation for _ in range(count)] if len(shape) == 2 else [1.0] * count
        weights[name] = encoded(values, shape)
    return weights, ['random weights: no loss to speak of']


# ---- training ----

def trained(args, data):
    import torch
    import torch.nn.functional as F

    device = 'cuda' if torch.cuda.is_available() and not args.smoke else 'cpu'
    say(f'torch {torch.__version__} on ' + (torch.cuda.get_device_name() if device == 'cuda' else 'the CPU'))
    torch.manual_seed(args.seed)

    def mixed():
        return torch.autocast('cuda', dtype=torch.bfloat16) if device == 'cuda' else contextlib.nullcontext()

    # One flat dictionary of parameters under the file's names: what is trained is what is written.
    weights = {}
    for name, shape in shapes(args):
        if len(shape) == 1:
            value = torch.ones(shape)
        else:
            value = torch.randn(shape) * 0.02
            if 'attn_output' in name or 'ffn_down' in name:
                value /= math.sqrt(2 * args.layers)
        weights[name] = value.to(device).requires_grad_(True)

    # Rotation of neighbours, elements 2i and 2i + 1, as the architecture "llama" of GGUF has it.
    frequencies = ROPE_BASE ** (-torch.arange(0, args.head, 2, device=device, dtype=torch.float32) / args.head)
    angles = torch.arange(args.ctx, device=device, dtype=torch.float32)[:, None] * frequencies[None, :]
    cosines, sines = angles.cos(), angles.sin()

    def rotate(x):  # batch, heads, tokens, head
        even, odd = x.float()[..., 0::2], x.float()[..., 1::2]
        c, s = cosines[:x.shape[2]], sines[:x.shape[2]]
        return torch.stack((even * c - odd * s, even * s + odd * c), dim=-1).flatten(-2).to(x.dtype)

    def norm(x, weight):
        x = x.float()
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + RMS_EPSILON) * weight

    def forward(ids):
        batch, count = ids.shape
        x = F.embedding(ids, weights['token_embd.weight'])
        for layer in range(args.layers):
            w = {part: weights[f'blk.{layer}.{part}.weight'] for part in
                 ('attn_norm', 'attn_q', 'attn_k', 'attn_v', 'attn_output', 'ffn_norm', 'ffn_gate', 'ffn_up',
                  'ffn_down')}
            y = norm(x, w['attn_norm'])
            q = rotate(F.linear(y, w['attn_q']).view(batch, count, args.heads, args.head).transpose(1, 2))
            k = rotate(F.linear(y, w['attn_k']).view(batch, count, args.kv_heads, args.head).transpose(1, 2))
            v = F.linear(y, w['attn_v']).view(batch, count, args.kv_heads, args.head).transpose(1, 2)
            k = k.repeat_interleave(args.heads // args.kv_heads, dim=1)  # query head h reads h / (heads / kv_heads)
            v = v.repeat_interleave(args.heads // args.kv_heads, dim=1)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + F.linear(y.transpose(1, 2).reshape(batch, count, args.dim), w['attn_output'])
            y = norm(x, w['ffn_norm'])
            x = x + F.linear(F.silu(F.linear(y, w['ffn_gate'])) * F.linear(y, w['ffn_up']), w['ffn_down'])
        return F.linear(norm(x, weights['output_norm.weight']), weights['token_embd.weight'])

    def loss_of(ids):
        logits = forward(ids[:, :-1])
        return F.cross_entropy(logits.float().reshape(-1, args.vocab), ids[:, 1:].reshape(-1))

    @torch.no_grad()
    def held_out_loss(stories):
        """Nats per token and bits per byte, in f32; <|endoftext|> before a story is given, the one after it counts."""
        nats = tokens = size = 0
        for at in range(0, len(stories), 50):
            some = stories[at:at + 50]
            longest = min(max(len(ids) for ids, _ in some) + 2, args.ctx + 1)
            rows = torch.full((len(some), longest), -1, dtype=torch.long)
            for row, (ids, bytes_) in enumerate(some):
                ids = [bpe.END, *ids, bpe.END][:longest]
                rows[row, :len(ids)] = torch.tensor(ids)
                tokens += len(ids) - 1
                size += bytes_
            rows = rows.to(device)
            logits = forward(rows[:, :-1].clamp(min=0)).float()
            nats += F.cross_entropy(logits.reshape(-1, args.vocab), rows[:, 1:].reshape(-1), ignore_index=-1,
                                    reduction='sum').item()
        return nats / tokens, nats / math.log(2) / size

    def snapshot():
        return {name: encoded(value.detach().float().cpu().flatten().tolist(), value.shape)
                for name, value in weights.items()}

    # Rows begin with a story, as a user's text does.
    train = torch.frombuffer(data.train, dtype=torch.int16).to(device)
    starts = (train == bpe.END).nonzero().flatten()
    starts = starts[starts < len(train) - args.ctx - 1]
    if len(starts) == 0:
        sys.exit('too few stories for one row: give more --stories')
    offsets = torch.arange(args.ctx + 1, device=device)

    def batch():
        some = starts[torch.randint(len(starts), (args.batch,), device=device)]
        return train[some[:, None] + offsets].long()

    groups = [{'params': [w for w in weights.values() if w.dim() == 2], 'weight_decay': args.decay},
              {'params': [w for w in weights.values() if w.dim() == 1], 'weight_decay': 0.0}]
    try:
        optimizer = torch.optim.AdamW(groups, lr=args.rate, betas=(0.9, 0.95), eps=1e-8, fused=device == 'cuda')
    except (RuntimeError, TypeError):
        optimizer = torch.optim.AdamW(groups, lr=args.rate, betas=(0.9, 0.95), eps=1e-8)
    step_loss = loss_of
    if args.compile:
        try:
            step_loss = torch.compile(loss_of)
            with mixed():
                step_loss(batch()).backward()
            optimizer.zero_grad(set_to_none=True)
            say('compiled')
        except Exception as error:  # whatever the compiler lacks: training goes on without
            say(f'torch.compile failed ({type(error).__name__}): going on without')
            step_loss = loss_of
            optimizer.zero_grad(set_to_none=True)

    stop = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
    some_held_out = data.held_out[:200]
    limit = args.minutes * 60
    began = logged = evaluated = time.monotonic()
    steps = logged_steps = 0
    rate_factor, halfway = 1.0, False
    good = {name: value.detach().clone() for name, value in weights.items()}
    say(f'training {parameters(args)} parameters for {args.minutes} minutes, {args.batch} x {args.ctx} tokens a step')
    while not stop:
        elapsed = time.monotonic() - began
        if elapsed >= limit:
            break
        share = elapsed / limit
        warm = min(1.0, (steps + 1) / 200) if not args.smoke else 1.0
        rate = args.rate * rate_factor * warm * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * share)))
        for group in optimizer.param_groups:
            group['lr'] = rate
        with mixed():
            loss = step_loss(batch())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(weights.values()), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        steps += 1
        if steps % 20 == 0 and device == 'cuda':
            torch.cuda.synchronize()  # the clock above is the GPU's too
        now = time.monotonic()
        if now - logged < 10 and steps != 1 and steps != 100:
            continue
        value = loss.item()
        speed = (steps - logged_steps) * args.batch * args.ctx / (now - logged)
        line = (f'step {steps}, {share * 100:.0f}%: loss {value:.4f}, rate {rate:.2e}, '
                f'{speed / 1e6:.2f} million tokens/s')
        logged, logged_steps = now, steps
        if not math.isfinite(value):
            rate_factor /= 2
            with torch.no_grad():
                for name, weight in weights.items():
                    weight.copy_(good[name])
            optimizer.state.clear()
            say(line + '; back to the last good weights, half the rate')
            continue
        if now - evaluated >= 30:
            evaluated = now
            held, bits = held_out_loss(some_held_out)
            line += f'; held out {held:.4f} nats per token, {bits:.4f} bits per byte'
            if math.isfinite(held):
                good = {name: weight.detach().clone() for name, weight in weights.items()}
        say(line)
        if share >= 0.5 and not halfway:
            halfway = True
            write_model(args, data.encoder, snapshot())
            say(f'{args.out}: written as it is halfway')
            logged = time.monotonic()

    if not math.isfinite(loss.item() if steps else 0.0):
        with torch.no_grad():
            for name, weight in weights.items():
                weight.copy_(good[name])
    seconds = time.monotonic() - began
    say(f'{steps} steps, {steps * args.batch * args.ctx} tokens in {seconds:.1f} s')
    final = snapshot()
    write_model(args, data.encoder, final)  # before anything else can go wrong
    plain = held_out_loss(data.held_out)
    with torch.no_grad():
        for name, shape in shapes(args):
            if kind_of(shape) == 'q8_0':
                weights[name].copy_(torch.tensor(gguf.dequantize_q8_0(final[name]), dtype=torch.float32).view(shape))
    quantized = held_out_loss(data.held_out)

    @torch.no_grad()
    def tell(prompt, temperature, most=300):
        ids = [bpe.END, *data.encoder.encode(prompt)]
        while len(ids) < min(most, args.ctx):
            logits = forward(torch.tensor([ids], device=device))[0, -1].float()
            if temperature:
                number = int(torch.multinomial(torch.softmax(logits / temperature, -1), 1))
            else:
                number = int(logits.argmax())
            if number == bpe.END:
                break
            ids.append(number)
        return data.encoder.decode(ids[1:])

    samples = []
    try:
        for prompt, temperature in (('Once upon a time', 0), ('Once upon a time', 0.8), ('One day', 0.8), ('', 1.0)):
            samples.append(f'--- "{prompt}", temperature {temperature}:\n{tell(prompt, temperature)}')
    except Exception as error:  # the model is written: a sample is not worth the run
        samples.append(f'no sample: {error}')
    return final, samples + [
        f'trained: {steps} steps of {args.batch} x {args.ctx} tokens, {seconds:.0f} s, {data.stories} stories',
        f'held out, f32:  {plain[0]:.4f} nats per token, {plain[1]:.4f} bits per byte',
        f'held out, Q8_0: {quantized[0]:.4f} nats per token, {quantized[1]:.4f} bits per byte']


if __name__ == '__main__':
    main()
