/* Every rank adds its number to a sum over all of them, and checks it. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv) {
	int rank, size, mine, sum = 0, length;
	char host[MPI_MAX_PROCESSOR_NAME];

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	MPI_Get_processor_name(host, &length);
	mine = rank + 1;
	MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	printf("rank %d of %d on %s: the sum is %d\n", rank, size, host, sum);
	MPI_Finalize();
	return sum == size * (size + 1) / 2 ? 0 : 1;
}
