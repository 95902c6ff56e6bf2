"""smp-data tokenize: tokenize files of text into one corpus."""
import os

from smp_data import inputs
from smp_data.corpus import Corpus
from smp_data.documents import read
from smp_data.encoder import DocumentTooLong, Encoder, surround
from smp_data.errors import BadInput
from smp_data.progress import Progress
from smp_data.tokenizer import Named
from smp_data.workers import Workers


def write(corpus, shards, workers, pieces_of):
    """Adds the workers' results to a corpus, in the order of the pieces. pieces_of(number, shard) yields pieces; a worker
    returns the arguments of Corpus.add. Returns the progress at the end."""
    done = corpus.resume(shards)
    if done:
        print(f"{corpus.state_path}; continuing after {done:,} of {len(shards):,} input files")
    identities = {}

    def pieces():
        for number in range(done, len(shards)):
            identities[number] = shards[number].identity()
            yield from pieces_of(number, shards[number])

    progress = Progress(sum(shard.bytes for shard in shards), sum(shard.bytes for shard in shards[:done]))
    try:
        for piece, result in workers.results(pieces()):
            corpus.add(*result, opens=piece.opens, closes=piece.closes)
            progress.add(piece.bytes, corpus.now["tokens"])
            if piece.last:
                status, identity = os.stat(piece.path), identities.pop(piece.shard)
                if (status.st_size, status.st_mtime_ns) != (identity["bytes"], identity["mtime_ns"]):
                    raise BadInput(piece.path, "the file changed while it was read: start again when it is complete")
                corpus.shard_done(identity)
    finally:
        progress.clear()
    return progress


def told(corpus, progress):
    """The last line of the command's output."""
    state = corpus.state
    text = (f"{corpus.paths['bin']}: {state['tokens']:,} tokens of {state['documents']:,} documents, {corpus.dtype.name}; "
            f"{(progress.done - progress.first) / 1e6:,.1f} MB in {progress.seconds():.1f} s, {progress.speed():.1f} MB/s")
    if state["left_out"]:
        text += f"; {state['left_out']:,} documents without a token were skipped"
    return text


def run(options):
    named = Named(options.tokenizer)
    end = named.end_of_document(options.end_of_document)
    dtype = named.dtype(options.dtype)
    prefix, suffix = (named.prefix, list(named.suffix)) if options.special_tokens else ([], [])
    if end is not None and suffix[-1:] != [end]:
        suffix.append(end)
    shards = inputs.shards_of(inputs.files_of(options.inputs), options.documents, options.skip_empty)
    inputs.check_columns(shards, options.json_key)
    encoder = Encoder(named.tokenizer)

    def encode(piece):
        try:
            tokens, lengths = encoder.encode(*read(piece, options.json_key))
        except DocumentTooLong as error:
            raise BadInput(piece.path, str(error)) from None
        tokens, lengths = surround(tokens, lengths, prefix if piece.opens else [], suffix if piece.closes else [],
                                   even_empty=not (piece.opens and piece.closes))
        return tokens.astype(dtype), lengths

    content = {"command": "tokenize", "tokenizer": named.sha256, "dtype": dtype.name, "json-key": options.json_key,
               "end-of-document": end, "special-tokens": [prefix, suffix], "documents": options.documents}
    with Corpus(options.out, content, dtype, overwrite=options.overwrite) as corpus, \
            Workers(options.workers, encode) as workers:
        ends = "nothing" if end is None else f"{named.text(end)} ({end})"
        print(f"{options.tokenizer}: {named.vocab_size:,} tokens; {ends} ends each document" + (
            "" if encoder.cutter.possible else "; slow, because this kind of tokenizer encodes each document whole"), flush=True)
        progress = write(corpus, shards, workers, lambda number, shard: inputs.pieces_of(
            number, shard, options.json_key, encoder.cutter))
        corpus.finish(named.manifest(dtype, end))
        print(told(corpus, progress))
