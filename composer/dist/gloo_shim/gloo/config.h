// Stands in for a header of gloo; see context.h.
#pragma once
#include "gloo/context.h"
