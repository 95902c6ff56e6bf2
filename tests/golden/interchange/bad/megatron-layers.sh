pretrain_gpt.py --num-layers 10 --hidden-size 64 --pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 2
