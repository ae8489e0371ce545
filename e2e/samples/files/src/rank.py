import os

print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], "local", os.environ["LOCAL_RANK"], "at", os.environ["MASTER_ADDR"] != "")
