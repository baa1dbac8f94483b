"""distcore-horovod: distcore under horovodrun and mpirun, and Horovod as the trainer of any
backend."""
