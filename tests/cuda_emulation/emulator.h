// Included before the translated source of a CUDA program.
#pragma once

#include "launch.h"
