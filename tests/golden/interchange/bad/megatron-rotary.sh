python pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 --vocab-size 512 \
  --position-embedding-type rope --use-rope-scaling --rotary-seq-len-interpolation-factor 2 \
  --rotary-interleaved --window-size "(128,128)" --window-attn-skip-freq 2
