/* Sheets: rows of elements, dense along a row; each array has a row stride of its own, and a stride
 * of 0 repeats one row for all. What elementwise.h does for one range is done here row by row.
 *
 * Launching: x is along a row (fast where each thread gets RF_GROUPS groups), y takes rows; any grid in both,
 * a one-dimensional block. A sheet without gaps is best launched as one row of all its elements. */
#ifndef RF_KERNELS_SHEET_H
#define RF_KERNELS_SHEET_H

#include "kernels/elementwise.h"

/* A loop over the rows of this block; its statement uses 'row'. */
#define RF_FOR_ROWS(rows)                                                                                            \
    RF_NO_UNROLL                                                                                                     \
    for (uint64_t row = rf_block_y(); row < (rows); row += rf_grid_dim_y())

#endif
