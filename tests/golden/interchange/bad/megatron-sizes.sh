pretrain_gpt.py --num-layers 10 --hidden-size 65 --num-attention-heads 4 --bf16 --fp16 --position-embedding-type yarn --group-query-attention --num-query-groups 3
