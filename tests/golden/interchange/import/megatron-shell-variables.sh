# Sizes that other scripts source: no command stands here.
if [ -z ${HF_MODEL} ]; then
    HF_MODEL=x/y-8B
fi
LAYERS=32
MODEL_ARGS=" \
    --num-layers $LAYERS \
    --hidden-size 4096 --num-attention-heads 32 --vocab-size 128256 \
    --seq-length 4096 --max-position-embeddings 4096 --micro-batch-size 1 \
    --tokenizer-model ${HF_MODEL} \
"
