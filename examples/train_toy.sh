#!/usr/bin/env bash
# The whole workflow on a real corpus, in a few minutes on two cores: corpus, vocabulary, train, test,
# restart, test again, dump-weights. `make demo` runs it; with bilm installed, run it directly:
#
#     bash examples/train_toy.sh [DIRECTORY]        (default: demo)
#
# Exits with an error if the model is not better on heldout text than a unigram model.
set -euo pipefail
here=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."

demo=${1:-demo}
[[ $# -eq 0 || $demo == /* ]] || demo=$here/$demo
batch_size=${DEMO_BATCH_SIZE:-64}
train_steps=${DEMO_TRAIN_STEPS:-600}
restart_steps=${DEMO_RESTART_STEPS:-100}

train_prefix="$demo/corpus/train/*" # for bilm, which expands it
heldout=$demo/corpus/heldout.txt
vocab=$demo/vocab.txt
run_dir=$demo/run

step() { # TITLE COMMAND...: show the command so that it can be copied, then run it
  printf '\n== %s\n$' "$1"
  shift
  local word
  for word in "$@"; do
    [[ $word == *[[:space:]*?]* ]] && word="'$word'"
    printf ' %s' "$word"
  done
  printf '\n'
  "$@"
}

perplexity() { # LOG: the perplexity in the last line of `bilm test --json`
  tail -n 1 "$1" | python -c 'import json, sys; print(format(json.load(sys.stdin)["perplexity"], ".2f"))'
}

below() { # A B: whether A < B
  python -c 'import sys; sys.exit(not float(sys.argv[1]) < float(sys.argv[2]))' "$1" "$2"
}

mkdir -p "$demo"
SECONDS=0

step "An English corpus: the docstrings of the installed packages" \
  python examples/docstring_corpus.py "$demo/corpus" --overwrite

step "Vocabulary: every word that occurs three times" \
  bilm vocab build --train-prefix "$train_prefix" --outfile "$vocab" --min-count 3 --overwrite

step "What a model of word counts alone achieves" \
  python examples/unigram.py --train-prefix "$train_prefix" --heldout "$heldout" --vocab-file "$vocab" |
  tee "$demo/unigram.log"

step "Train" \
  bilm train --preset tiny --train-prefix "$train_prefix" --vocab-file "$vocab" --save-dir "$run_dir" \
  --batch-size "$batch_size" --max-steps "$train_steps" --overwrite

step "Test on heldout text" \
  bilm test --save-dir "$run_dir" --test-prefix "$heldout" --vocab-file "$vocab" --json |
  tee "$demo/test.log"

step "Restart: continue from the checkpoint" \
  bilm restart --save-dir "$run_dir" --train-prefix "$train_prefix" --vocab-file "$vocab" \
  --batch-size "$batch_size" --max-steps "$restart_steps"

step "Test again" \
  bilm test --save-dir "$run_dir" --test-prefix "$heldout" --vocab-file "$vocab" --json |
  tee "$demo/test-after-restart.log"

step "Write the weights in bilm-tf's HDF5 layout" \
  bilm dump-weights --save-dir "$run_dir" --outfile "$demo/weights.hdf5" --overwrite

unigram=$(sed -n 's/^unigram perplexity.*: \([0-9.]*\) over.*/\1/p' "$demo/unigram.log")
trained=$(perplexity "$demo/test.log")
restarted=$(perplexity "$demo/test-after-restart.log")

printf '\n== Heldout perplexity\n'
printf '%-16s %10s\n' "unigram model" "$unigram" "after train" "$trained" "after restart" "$restarted"
printf '%-16s %10s\n' "seconds" "$SECONDS"

if ! below "$trained" "$unigram" || ! below "$restarted" "$unigram"; then
  echo "The demo failed: the model is not better than the unigram model." >&2
  exit 1
fi
