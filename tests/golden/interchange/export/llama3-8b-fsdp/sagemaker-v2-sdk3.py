from sagemaker.train.distributed import SMP, Torchrun

distributed = Torchrun(
    process_count_per_node=8,
    smp=SMP(
        hybrid_shard_degree=8,
        tensor_parallel_degree=1,
        sm_activation_offloading=True,
        activation_loading_horizon=3,
        random_seed=1234,
    ),
)
