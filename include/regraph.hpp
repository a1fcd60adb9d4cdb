#pragma once
#include <regraph.h>
