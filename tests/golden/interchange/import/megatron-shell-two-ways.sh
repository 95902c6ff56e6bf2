# One training, started in two ways; paths to be filled in.
DATA=<Specify path>
OPTIONS=" --num-layers 12 --hidden-size 768 --num-attention-heads 12 --vocab-size 50257 \
  --seq-length 1024 --max-position-embeddings 1024 --micro-batch-size 4 --global-batch-size 64 \
  --bf16 --data-path $DATA --deepspeed_config $(dirname $0)/ds.json"
if [[ $BATCH -eq 0 ]]; then
  torchrun --nproc_per_node 8 pretrain_gpt.py ${OPTIONS}
else
  srun -l sh -c "python -u pretrain_gpt.py ${OPTIONS}"
fi
