package sizes

// Builtin is the catalogue that comes with Berth.
var Builtin = builtin
