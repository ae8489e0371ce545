"""Every process adds its rank to a sum over all of them, and a small model is trained in step."""

import gc
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo")  # finds its peers by MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE

total = torch.tensor([float(rank + 1)])
dist.all_reduce(total)
want = world * (world + 1) / 2
print(f"rank {rank} of {world} on node {os.environ['NODE_RANK']}: the sum is {total.item():.0f}", flush=True)
assert total.item() == want, f"the sum is {total.item()}, not {want}"

torch.manual_seed(0)  # the same model everywhere, and a part of the data for each
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
generator = torch.Generator().manual_seed(rank)
x = torch.randn(256, 8, generator=generator)
y = x.sum(dim=1, keepdim=True)
for step in range(50):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
print(f"rank {rank}: loss {loss.item():.4f}", flush=True)
assert loss.item() < 0.1

weights = [torch.zeros(8) for _ in range(world)]
dist.all_gather(weights, model.module.weight.detach().flatten())
assert all(torch.equal(w, weights[0]) for w in weights), "the models have come apart"
if rank == 0:
    torch.save(model.module.state_dict(), "outputs/model.pt")

# A model that is alive while the group ends makes some versions of torch abort at exit.
del model, optimizer, loss
gc.collect()
dist.destroy_process_group()
