# A regression: reads a CSV file, writes the model and its coefficients.
args <- commandArgs(trailingOnly = TRUE)
value <- function(name) args[match(name, args) + 1]

cars <- read.csv(value("--data"))
model <- lm(distance ~ speed, data = cars)
dir.create(value("--model"), showWarnings = FALSE, recursive = TRUE)
saveRDS(model, file.path(value("--model"), "model.rds"))
write.csv(data.frame(name = names(coef(model)), value = coef(model)), file.path(value("--model"), "coefficients.csv"), row.names = FALSE)
cat(sprintf("rows %d slope %.2f\n", nrow(cars), coef(model)[["speed"]]))
