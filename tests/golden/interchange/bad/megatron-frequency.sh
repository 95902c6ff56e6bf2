pretrain_gpt.py --num-layers 4 --hidden-size 64 --num-experts 4 --moe-layer-freq '([1]*2+[0]*2)' --optimizer sgd --recompute-granularity full
