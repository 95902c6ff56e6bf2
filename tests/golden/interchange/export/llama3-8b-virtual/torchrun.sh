torchrun --nnodes 1 --nproc-per-node 8 --standalone train.py
