pretrain_gpt.py --num-layers 4 --hiden-size 64 --tensor-model-paralel-size 2
