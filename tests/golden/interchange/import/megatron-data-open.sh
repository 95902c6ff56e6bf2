# What a script leaves open is to be said in the job file.
if [ "$1" = eval ]; then EVAL="--eval-interval 100"; fi
torchrun --nproc-per-node 4 pretrain_gpt.py \
  --num-layers 4 --hidden-size 256 --num-attention-heads 4 --vocab-size 50257 \
  --max-position-embeddings 512 --seq-length 512 --micro-batch-size 2 --data-path 1 $DATA 2 b \
  --split 100,0,0 --eval-iters $ITERS $EVAL
