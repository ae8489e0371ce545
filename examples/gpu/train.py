"""Fits a small network on the GPU it was given, and says when it began and ended."""

import os
import time

import torch

print(f"begin {time.time():.2f} devices={os.environ.get('CUDA_VISIBLE_DEVICES')!r} count={torch.cuda.device_count()} {torch.cuda.get_device_name(0)}", flush=True)
torch.manual_seed(0)
x = torch.randn(8192, 512, device="cuda")
y = x.sum(dim=1, keepdim=True)
model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 1)).cuda()
step = torch.optim.Adam(model.parameters(), lr=1e-3)
first = None
for _ in range(300):
    loss = torch.nn.functional.mse_loss(model(x), y)
    step.zero_grad()
    loss.backward()
    step.step()
    first = first or loss.item()
print(f"loss {first:.1f} -> {loss.item():.3f}", flush=True)
assert loss.item() < first / 10
time.sleep(2)
print(f"end {time.time():.2f}", flush=True)
