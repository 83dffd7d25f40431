/* What rf_lease_table_is_valid finds: each of the things it looks at is broken once by hand. */
#include "../checks_testing.h"
#include "helpers.h"
#include "gpu/lease_impl.h"

#include <sys/stat.h>
#include <unistd.h>

RF_TEST(invariants, of_the_lease_table) {
    NEED_CHECKS();
    char dir[64];
    bool live[RF_LEASE_SLOTS] = {false};
    struct rf_lease_table *table = NULL, *other = NULL;
    uint32_t index = 0;
    make_folder(dir, sizeof dir);
    RF_ASSERT_OK(rf_lease_table_acquire(dir, TEST_UUID, true, &table));
    RF_ASSERT_OK(rf_lease_table_acquire(dir, "GPU-another", true, &other));
    RF_ASSERT_OK(rf_lease_table_lock(table, rf_deadline_after(PATIENCE_NS)));
    RF_ASSERT_OK(rf_lease_table_refresh(table, live));
    RF_ASSERT_OK(rf_lease_slot_claim(table, 77, &index));
    struct rf_lease_slot *slot = rf_lease_table_slot(table, index);
    slot->kind = RF_LEASE_ROOT;
    rf_lease_slot_publish(table, index);
    EXPECT_VALID(rf_lease_table_is_valid, table);
    /* what this process has open */
    PLANT(rf_lease_table_is_valid, table, table->depth, 0, "not locked");
    PLANT(rf_lease_table_is_valid, table, table->references, 0, "nobody refers to it");
    PLANT(rf_lease_table_is_valid, table, table->fd, other->fd, "of another file");
    PLANT(rf_lease_table_is_valid, table, table->inode, table->inode + 1, "of another file");
    ino_t inode = other->inode;
    other->inode = table->inode;
    EXPECT_INVALID(rf_lease_table_is_valid, table, "open twice");
    other->inode = inode;
    /* slots */
    PLANT(rf_lease_table_is_valid, table, slot->state, 17, "neither live nor free");
    PLANT(rf_lease_table_is_valid, table, slot->kind, 0, "has no kind");
    PLANT(rf_lease_table_is_valid, table, slot->kind, RF_LEASE_LENT + 1, "has no kind");
    PLANT(rf_lease_table_is_valid, table, slot->generation, 0, "has no generation");
    PLANT(rf_lease_table_is_valid, table, slot->owner.pid, 0, "has no owner");
    PLANT(rf_lease_table_is_valid, table, rf_lease_table_slot(table, RF_LEASE_SLOTS - 1)->state, RF_LEASE_LIVE,
          "has no kind");
    /* the file */
    PLANT(rf_lease_table_is_valid, table, table->map[0], 'x', "not this layout's");
    PLANT(rf_lease_table_is_valid, table, table->map[8], 99, "not this layout's");
    struct stat file;
    RF_ASSERT(stat(rf_lease_table_path(table), &file) == 0);
    RF_ASSERT(truncate(rf_lease_table_path(table), 4096) == 0);
    EXPECT_INVALID(rf_lease_table_is_valid, table, "shorter than its map");
    RF_ASSERT(truncate(rf_lease_table_path(table), file.st_size) == 0);
    /* What comes from outside is mended, not asserted. */
    RF_ASSERT_OK(rf_lease_table_refresh(table, live));
    EXPECT_VALID(rf_lease_table_is_valid, table);
    rf_lease_table_unlock(table);
    rf_lease_table_release(other);
    rf_lease_table_release(table);
    remove_folder(dir);
}
