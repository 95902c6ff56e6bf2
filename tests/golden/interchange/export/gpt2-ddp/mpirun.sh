mpirun -np 8 --map-by ppr:8:node --bind-to none -x MASTER_ADDR=localhost -x MASTER_PORT=29500 python train.py
