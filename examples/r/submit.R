# Azure's Python client from R: install.packages("reticulate"), and a Python with azure-ai-ml and azure-identity.
#
#   eval "$(berth azure-env --export)"     # on a compute instance this is not needed
#   RETICULATE_PYTHON=/path/to/python Rscript submit.R
library(reticulate)

ml <- import("azure.ai.ml")
identity <- import("azure.identity")
client <- ml$MLClient(identity$DefaultAzureCredential(), Sys.getenv("AZURE_SUBSCRIPTION_ID"),
                      Sys.getenv("AZURE_RESOURCE_GROUP"), Sys.getenv("AZUREML_WORKSPACE_NAME"))
job <- client$jobs$create_or_update(ml$command(
  command = "echo submitted from R", environment = "azureml:AzureML-Minimal@latest", compute = "local"))
client$jobs$stream(job$name)
cat("status", as.character(client$jobs$get(job$name)$status), "\n")
