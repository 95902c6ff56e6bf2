python pretrain_gpt.py --num-layers 8 --hidden-size 64 --num-attention-heads 4 --vocab-size 512 \
  --window-size '(127,0)' --window-attn-skip-freq '([1]*3+[0])*2'
