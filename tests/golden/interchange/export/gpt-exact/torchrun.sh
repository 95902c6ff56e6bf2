torchrun --nnodes 1 --nproc-per-node 4 --standalone train.py
