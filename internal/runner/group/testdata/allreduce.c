/* Adds 1 to N over N ranks, and checks the sum. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv) {
	int rank, size, mine, sum = 0;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
#ifdef ABORT
	if (rank == ABORT)
		MPI_Abort(MPI_COMM_WORLD, 6);
#endif
	mine = rank + 1;
	MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	printf("rank %d of %d: the sum is %d\n", rank, size, sum);
	MPI_Finalize();
	return sum == size * (size + 1) / 2 ? 0 : 1;
}
